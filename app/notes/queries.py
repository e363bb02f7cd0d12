"""All SQL of notes."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    ARRAY,
    Select,
    Text,
    Uuid,
    and_,
    cast,
    column,
    func,
    literal,
    or_,
    select,
    table,
    text,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import IntegrityError

from app.access import Principal
from app.db.database import Row, Session
from app.db.inserts import as_parameter, insert_rows
from app.db.scope import EVERY_USER
from app.db.users import newest
from app.errors import Conflict
from app.notes.tables import memory_history, memory_notes

COLUMNS = (
    "note_id", "content", "type", "tags", "scope", "garden_id", "agent_id", "user_id", "author", "occurred_at",
    "thread_id", "position", "pinned", "extraction_status", "version", "derived_from", "confidence", "extraction_model",
    "created_at", "updated_at",
)  # fmt: skip
_columns = [memory_notes.c[name] for name in COLUMNS]
# Names the project of a row that another one shares.
_OTHER_PROJECT = func.nullif(memory_notes.c.project_id, func.current_setting("app.project_id")).label("other_project")
# The columns of another domain's table that are read here.
garden_members = table(
    "garden_members",
    column("tenant_id", Text),
    column("garden_id", Uuid(as_uuid=False)),
    column("agent_id", Text),
    column("role", Text),
)
# Fields that lexical search indexes as `terms`.
INDEXED_FIELDS = {"author", "occurred_at", "tags", "content"}
# Fields that make two live notes duplicates; see the index memory_notes_live_key.
IDENTITY = ("scope", "owner_key", "thread_id", "position", "content_hash")
# Write what an extraction derived and proposed.
APPLY_EXTRACTION = text(
    "SELECT * FROM apply_extraction(:tenant, :project, CAST(:note AS uuid), :version, :model, CAST(:derived AS json), "
    "CAST(:records AS json), CAST(:link AS jsonb))"
)
# Delete notes with what was derived from them and the facts that rest on them alone.
DELETE_NOTES = text(
    "SELECT * FROM delete_notes(CAST(:notes AS uuid[]), :changed_by, :reason, CAST(:proposal AS jsonb), :key)"
)
# Recover what was deleted or retracted with a note that is live again.
RECOVER_DEPENDENTS = text("SELECT * FROM recover_dependents(CAST(:note AS uuid), :changed_by, :key)")
# Those of the notes that are live, and the live notes derived from them at any distance: the note, which of the named
# notes it comes from, and whether it is pinned.
FAMILY = """
    WITH RECURSIVE family(source, note_id, pinned) AS (
        SELECT n.note_id, n.note_id, n.pinned FROM memory_notes n
        WHERE n.tenant_id = :tenant AND n.deleted_at IS NULL AND n.note_id = ANY (CAST(:notes AS uuid[]))
        UNION ALL
        SELECT f.source, n.note_id, n.pinned FROM family f
        JOIN memory_notes n ON n.tenant_id = :tenant AND n.derived_from = f.note_id AND n.deleted_at IS NULL
    )
    SELECT source, note_id, pinned FROM family"""
# How many facts that the caller can see rest on these notes alone.
COUNT_UNSUPPORTED = text("SELECT cardinality(unsupported_facts(:tenant, CAST(:notes AS uuid[]))) AS facts")
# A deletion of thousands of notes may take longer than a request.
NO_TIMEOUT = text("SET LOCAL statement_timeout = 0")


async def insert_notes(session: Session, *, rows: list[Row]) -> list[Row]:
    """Insert the notes that have no live duplicate, in one statement, and return them."""
    insertion = insert_rows(memory_notes, rows, computed={**_TERMS, **_extraction_status(rows[0])})
    statement = text(f"{insertion} ON CONFLICT DO NOTHING RETURNING {', '.join(COLUMNS)}").columns(*_columns)
    return await session.rows(statement, as_parameter(rows))


# The computed columns of lexical search, in the language of the project.
_TERMS = {
    "terms": "note_terms(r.tenant_id, r.project_id, r.author, r.occurred_at, r.tags, r.content)",
    "telling": "count_content_terms(r.tenant_id, r.project_id, r.content)",
}


def _terms(note: Row) -> dict[str, Any]:
    """Return the same columns for a changed note."""
    project = (note["tenant_id"], note["project_id"])
    indexed = (note["author"], note["occurred_at"], cast(note["tags"], ARRAY(Text)), note["content"])
    return {
        "terms": func.note_terms(*project, *indexed),
        "telling": func.count_content_terms(*project, note["content"]),
    }


def _extraction_status(row: Row) -> dict[str, str]:
    """Return the status of new notes, unless their caller has set it: chunks and derived notes are not extracted."""
    if "extraction_status" in row:
        return {}
    derived = "r.derived_from IS NOT NULL OR " if "derived_from" in row else ""
    return {
        "extraction_status": f"CASE WHEN {derived}r.type = 'document_chunk' THEN 'none' "
        "ELSE initial_extraction_status(r.tenant_id, r.project_id) END"
    }


async def queue_embeddings(session: Session, *, tenant_id: str, project_id: str, note_ids: list[str]) -> None:
    """Queue notes to have their vectors made, or removed when the notes are deleted."""
    params = {"tenant": tenant_id, "project": project_id, "notes": note_ids}
    await session.execute(text("SELECT queue_units(:tenant, :project, 'note', CAST(:notes AS uuid[]))"), params)


async def queue_extractions(
    session: Session, *, tenant_id: str, project_id: str, note_ids: list[str], key_id: str, chunks: bool = False
) -> dict[str, str]:
    """Queue the extraction of notes where their project enables it; return the job of each by note id."""
    params = {"tenant": tenant_id, "project": project_id, "notes": note_ids, "key": key_id, "chunks": chunks}
    statement = text("SELECT * FROM queue_extractions(:tenant, :project, CAST(:notes AS uuid[]), :key, :chunks)")
    rows = await session.rows(statement, params)
    return {str(row["note_id"]): str(row["job_id"]) for row in rows if row["job_id"] is not None}


async def find_same(session: Session, *, tenant_id: str, project_id: str, rows: list[Row]) -> list[Row]:
    """Return live notes that have the content hash of one of the rows, with the fields of IDENTITY."""
    c = memory_notes.c
    return await session.rows(
        select(*_columns, c.owner_key, c.content_hash).where(
            c.tenant_id == tenant_id,
            c.project_id == project_id,
            c.content_hash.in_({row["content_hash"] for row in rows}),
            c.deleted_at.is_(None),
        )
    )


def select_note(*, tenant_id: str, note_id: str) -> Any:
    """Select one live note with the entities it mentions."""
    c = memory_notes.c
    mentions = func.note_mentions(c.tenant_id, c.note_id, None, type_=JSONB).label("mentions")
    return select(*_columns, _OTHER_PROJECT, mentions).where(
        c.tenant_id == tenant_id, c.note_id == note_id, c.deleted_at.is_(None)
    )


def select_named(*, tenant_id: str, note_ids: list[str]) -> Any:
    """Select live notes by their ids."""
    c = memory_notes.c
    return select(*_columns).where(c.tenant_id == tenant_id, c.note_id.in_(note_ids), c.deleted_at.is_(None))


def select_notes(
    who: Principal, *, filters: dict[str, Any], after: tuple[datetime, str] | None, limit: int
) -> Select[Any]:
    """Select live notes that the caller can see, newest first."""
    c = memory_notes.c
    conditions = _matching(who.tenant_id, filters)
    if after is not None:
        position = tuple_(literal(after[0]), literal(after[1], Uuid(as_uuid=False)))
        conditions.append(tuple_(c.created_at, c.note_id) < position)
    found = select(*_columns, _OTHER_PROJECT).where(and_(*conditions))
    return newest(found, (c.created_at, c.note_id), c.user_id, who, limit=limit)


def _matching(tenant_id: str, filters: dict[str, Any]) -> list[Any]:
    """Return the conditions on live notes that have these properties."""
    c = memory_notes.c
    conditions: list[Any] = [c.tenant_id == tenant_id, c.deleted_at.is_(None)]
    for name in ("type", "agent_id", "user_id", "author", "scope", "garden_id", "thread_id"):
        if (value := filters.get(name)) is not None:
            conditions.append(c[name] == value)
    if (tag := filters.get("tag")) is not None:
        conditions.append(literal(tag) == c.tags.any_())
    if (since := filters.get("since")) is not None:
        conditions.append(c.occurred_at >= since)
    if (until := filters.get("until")) is not None:
        conditions.append(c.occurred_at < until)
    return conditions


async def list_matching(
    session: Session, who: Principal, *, filters: dict[str, Any], limit: int, lock: bool
) -> list[Row]:
    """Return up to `limit` live notes of the project that match and that the caller may delete, oldest first.

    Notes of gardens are left out unless the caller may write there. With `lock` they are locked.
    """
    c = memory_notes.c
    conditions = [*_matching(who.tenant_id, filters), c.project_id == who.project_id]
    if who.user_id != EVERY_USER:
        conditions.append(c.user_id == who.user_id)
    if not who.is_admin:
        m = garden_members.c
        writes = select(m.garden_id).where(
            m.tenant_id == who.tenant_id, m.agent_id == who.agent_id, m.role.in_(("admin", "writer"))
        )
        conditions.append(or_(c.garden_id.is_(None), c.garden_id.in_(writes)))
    # In the order in which everybody locks notes; UUIDv7 ids grow with the time of creation.
    statement = select(*_columns).where(and_(*conditions)).order_by(c.note_id).limit(limit)
    return await session.rows(statement.with_for_update() if lock else statement)


# Notes as they were at a time, newest first. Filters on what never changes come first, because reading the history of a
# note costs more than reading the note.
_NOTES_AS_OF = """
    SELECT {columns} FROM (
        SELECT m FROM memory_notes m
        WHERE m.tenant_id = %(tenant)s AND (SELECT check_as_of(%(tenant)s, %(project)s, %(as_of)s::timestamptz))
          AND note_stands(m.created_at, m.deleted_at, %(as_of)s::timestamptz){fixed}
        ORDER BY m.created_at DESC, m.note_id DESC) x
    CROSS JOIN LATERAL note_at(x.m, %(as_of)s::timestamptz) n
    WHERE true{changing}
    LIMIT %(limit)s"""
_FIXED_FILTERS = {
    "note_id": "m.note_id = %(note_id)s::uuid",
    "agent_id": "m.agent_id = %(agent_id)s",
    "scope": "m.scope = %(scope)s",
    "garden_id": "m.garden_id = %(garden_id)s::uuid",
    "thread_id": "m.thread_id = %(thread_id)s",
    "after": "(m.created_at, m.note_id) < (%(after)s::timestamptz, %(after_id)s::uuid)",
}
_CHANGING_FILTERS = {
    "type": "n.type = %(type)s",
    "tag": "%(tag)s = ANY (n.tags)",
    "since": "n.occurred_at >= %(since)s",
    "until": "n.occurred_at < %(until)s",
}


def select_notes_as_of(filters: set[str]) -> str:
    """Return the query for notes as they were at a time, with the given filters; one note with its mentions."""
    conditions = (
        "".join(f" AND {known[name]}" for name in sorted(filters & known.keys()))
        for known in (_FIXED_FILTERS, _CHANGING_FILTERS)
    )
    columns = ", ".join(f"n.{name}" for name in (*COLUMNS, "suppression"))
    if "note_id" in filters:
        columns += ", note_mentions(%(tenant)s, n.note_id, %(as_of)s::timestamptz) AS mentions"
    return _NOTES_AS_OF.format(columns=columns, fixed=next(conditions), changing=next(conditions))


async def lock_note(session: Session, *, tenant_id: str, note_id: str) -> Row | None:
    """Lock one note, deleted or not, until the transaction ends and return it."""
    c = memory_notes.c
    return await session.row(
        select(*_columns, c.project_id, c.owner_key, c.content_hash, c.deleted_at)
        .where(c.tenant_id == tenant_id, c.note_id == note_id)
        .with_for_update()
    )


async def lock_notes(session: Session, *, tenant_id: str, note_ids: list[str]) -> None:
    """Lock notes until the transaction ends, in the order of their ids."""
    c = memory_notes.c
    await session.rows(
        select(c.note_id).where(c.tenant_id == tenant_id, c.note_id.in_(note_ids)).order_by(c.note_id).with_for_update()
    )


async def update_note(session: Session, *, tenant_id: str, note: Row, **values: Any) -> Row:
    """Update one note and return it; raise Conflict when another live note becomes its duplicate."""
    c = memory_notes.c
    note_id = str(note["note_id"])
    if INDEXED_FIELDS & values.keys():
        values |= _terms({**note, **values, "tenant_id": tenant_id})
    try:
        row = await session.row(
            update(memory_notes)
            .where(c.tenant_id == tenant_id, c.note_id == note_id)
            .values(**values)
            .returning(*_columns)
        )
    except IntegrityError as problem:
        raise Conflict("Another live note has the same content.", code="note_duplicate") from problem
    assert row is not None
    return row


async def set_extraction_status(session: Session, *, tenant_id: str, note_id: str, status: str) -> Row:
    """Set the extraction status of a note and return the note."""
    c = memory_notes.c
    statement = update(memory_notes).where(c.tenant_id == tenant_id, c.note_id == note_id)
    row = await session.row(statement.values(extraction_status=status).returning(*_columns))
    assert row is not None
    return row


async def apply_extraction(session: Session, **parameters: Any) -> Row:
    """Run APPLY_EXTRACTION and return its row."""
    row = await session.row(APPLY_EXTRACTION, parameters)
    assert row is not None
    return row


async def delete_notes(session: Session, *, note_ids: list[str], **parameters: Any) -> Row:
    """Run DELETE_NOTES and return its row."""
    row = await session.row(DELETE_NOTES, {"notes": note_ids, **parameters})
    assert row is not None
    return row


async def recover_dependents(session: Session, **parameters: Any) -> Row:
    """Run RECOVER_DEPENDENTS and return its row."""
    row = await session.row(RECOVER_DEPENDENTS, parameters)
    assert row is not None
    return row


async def list_family(session: Session, *, tenant_id: str, note_ids: list[str], pinned: bool = False) -> list[Row]:
    """Return the rows of FAMILY, with `pinned` only those of pinned notes."""
    statement = text(FAMILY + (" WHERE pinned ORDER BY note_id" if pinned else ""))
    return await session.rows(statement, {"tenant": tenant_id, "notes": note_ids})


async def count_unsupported(session: Session, *, tenant_id: str, note_ids: list[str]) -> int:
    """Return how many facts that the caller can see rest on these notes alone."""
    row = await session.row(COUNT_UNSUPPORTED, {"tenant": tenant_id, "notes": note_ids})
    assert row is not None
    return row["facts"]


async def insert_history(session: Session, *, rows: list[Row]) -> None:
    """Append events to the history of notes."""
    await session.execute(text(insert_rows(memory_history, rows)), as_parameter(rows))


def select_history(*, tenant_id: str, note_id: str, after: str | None, limit: int) -> Any:
    """Select the history of a note, oldest first."""
    c = memory_history.c
    names = (
        "history_id", "event", "version", "changed_by", "reason", "old_content", "new_content", "proposal",
        "before", "created_at",
    )  # fmt: skip
    statement = select(*(c[name] for name in names)).where(c.tenant_id == tenant_id, c.note_id == note_id)
    if after is not None:
        statement = statement.where(c.history_id > after)
    return statement.order_by(c.history_id).limit(limit)
