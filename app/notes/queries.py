"""All SQL of the room notes."""

from datetime import datetime
from typing import Any

from sqlalchemy import ARRAY, Text, Uuid, and_, cast, func, insert, literal, select, text, tuple_, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import IntegrityError

from app.db.database import Row, Session
from app.errors import Conflict
from app.notes.tables import memory_history, memory_notes

SHOWN = (
    "note_id", "content", "type", "tags", "scope", "garden_id", "agent_id", "author", "occurred_at", "thread_id",
    "position", "pinned", "extraction_status", "version", "derived_from", "confidence", "extraction_model",
    "created_at", "updated_at",
)  # fmt: skip
_shown = [memory_notes.c[name] for name in SHOWN]
# What a note is found by.
SEARCHED = {"author", "occurred_at", "tags", "content"}
APPLY_EXTRACTION = text(
    "SELECT * FROM apply_extraction(:tenant, :project, CAST(:note AS uuid), :version, :model, CAST(:drafts AS json), "
    "CAST(:records AS json), CAST(:link AS jsonb), :attempts, :owner, make_interval(secs => :lease))"
)
IDENTITY = ("scope", "owner_key", "thread_id", "position", "content_hash")


async def insert_notes(session: Session, *, rows: list[Row]) -> list[Row]:
    """Writes those that are not there yet, in one statement, and answers them."""
    found = [{**row, **_terms(row), **_start(row)} for row in rows]
    statement = upsert(memory_notes).values(found).on_conflict_do_nothing().returning(*_shown)
    return await session.rows(statement)


def _terms(note: Row) -> dict[str, Any]:
    """What a note is found by, as the database reads it."""
    place = (note["tenant_id"], note["project_id"])
    said = (note["author"], note["occurred_at"], cast(note["tags"], ARRAY(Text)), note["content"])
    return {"terms": func.note_terms(*place, *said), "telling": func.count_content_terms(*place, note["content"])}


def _start(note: Row) -> dict[str, Any]:
    """Whether a new note waits to be extracted, as its project decides; what was extracted itself does not."""
    if note.get("derived_from") is not None or note["type"] == "document_chunk":
        return {"extraction_status": "none"}
    return {"extraction_status": func.extraction_start(note["tenant_id"], note["project_id"])}


async def queue_notes(session: Session, *, tenant_id: str, project_id: str, note_ids: list[str]) -> None:
    """Has notes embedded, or what is stored of them removed."""
    place = {"tenant": tenant_id, "project": project_id, "notes": note_ids}
    await session.execute(text("SELECT queue_units(:tenant, :project, 'note', CAST(:notes AS uuid[]))"), place)


async def queue_extractions(
    session: Session, *, tenant_id: str, project_id: str, note_ids: list[str], key_id: str
) -> dict[str, str]:
    """Has notes extracted where their project wants it; answers the job of each."""
    place = {"tenant": tenant_id, "project": project_id, "notes": note_ids, "key": key_id}
    statement = text("SELECT * FROM queue_extractions(:tenant, :project, CAST(:notes AS uuid[]), :key)")
    rows = await session.rows(statement, place)
    return {str(row["note_id"]): str(row["job_id"]) for row in rows if row["job_id"] is not None}


async def find_same(session: Session, *, tenant_id: str, project_id: str, rows: list[Row]) -> list[Row]:
    """Live notes with the same content as these, with all that decides whether they are the same."""
    c = memory_notes.c
    return await session.rows(
        select(*_shown, c.owner_key, c.content_hash).where(
            c.tenant_id == tenant_id,
            c.project_id == project_id,
            c.content_hash.in_({row["content_hash"] for row in rows}),
            c.deleted_at.is_(None),
        )
    )


def select_note(*, tenant_id: str, note_id: str) -> Any:
    """One live note."""
    c = memory_notes.c
    return select(*_shown).where(c.tenant_id == tenant_id, c.note_id == note_id, c.deleted_at.is_(None))


def select_named(*, tenant_id: str, note_ids: list[str]) -> Any:
    """Live notes by their ids."""
    c = memory_notes.c
    return select(*_shown).where(c.tenant_id == tenant_id, c.note_id.in_(note_ids), c.deleted_at.is_(None))


def select_notes(*, tenant_id: str, filters: dict[str, Any], after: tuple[datetime, str] | None, limit: int) -> Any:
    """Live notes in the caller's reach, newest first."""
    c = memory_notes.c
    conditions: list[Any] = [c.tenant_id == tenant_id, c.deleted_at.is_(None)]
    for name in ("type", "agent_id", "scope", "garden_id", "thread_id"):
        if (value := filters.get(name)) is not None:
            conditions.append(c[name] == value)
    if (tag := filters.get("tag")) is not None:
        conditions.append(literal(tag) == c.tags.any_())
    if (since := filters.get("since")) is not None:
        conditions.append(c.occurred_at >= since)
    if (until := filters.get("until")) is not None:
        conditions.append(c.occurred_at < until)
    if after is not None:
        position = tuple_(literal(after[0]), literal(after[1], Uuid(as_uuid=False)))
        conditions.append(tuple_(c.created_at, c.note_id) < position)
    return select(*_shown).where(and_(*conditions)).order_by(c.created_at.desc(), c.note_id.desc()).limit(limit)


async def lock_note(session: Session, *, tenant_id: str, note_id: str) -> Row | None:
    """One note, deleted or not, locked until the transaction ends."""
    c = memory_notes.c
    return await session.row(
        select(*_shown, c.project_id, c.owner_key, c.content_hash, c.deleted_at)
        .where(c.tenant_id == tenant_id, c.note_id == note_id)
        .with_for_update()
    )


async def lock_notes(session: Session, *, tenant_id: str, note_ids: list[str]) -> None:
    """Locks notes until the transaction ends, in the order of their ids."""
    c = memory_notes.c
    await session.rows(
        select(c.note_id).where(c.tenant_id == tenant_id, c.note_id.in_(note_ids)).order_by(c.note_id).with_for_update()
    )


async def update_note(session: Session, *, tenant_id: str, note: Row, **values: Any) -> Row:
    """Changes one note; refuses to make it the same as another live one."""
    c = memory_notes.c
    note_id = str(note["note_id"])
    if SEARCHED & values.keys():
        values |= _terms({**note, **values, "tenant_id": tenant_id})
    try:
        row = await session.row(
            update(memory_notes)
            .where(c.tenant_id == tenant_id, c.note_id == note_id)
            .values(**values)
            .returning(*_shown)
        )
    except IntegrityError as problem:
        raise Conflict("Another live note says the same.", code="note_duplicate") from problem
    assert row is not None
    return row


async def set_extraction_status(session: Session, *, tenant_id: str, note_id: str, status: str) -> Row:
    """Where the extraction of a note stands."""
    c = memory_notes.c
    statement = update(memory_notes).where(c.tenant_id == tenant_id, c.note_id == note_id)
    row = await session.row(statement.values(extraction_status=status).returning(*_shown))
    assert row is not None
    return row


async def apply_extraction(session: Session, **parameters: Any) -> Row:
    """Writes what came of reading a note."""
    row = await session.row(APPLY_EXTRACTION, parameters)
    assert row is not None
    return row


async def insert_history(session: Session, *, rows: list[Row]) -> None:
    """Appends to the history."""
    await session.execute(insert(memory_history).values(rows))


def select_history(*, tenant_id: str, note_id: str, after: str | None, limit: int) -> Any:
    """What happened to a note, oldest first."""
    c = memory_history.c
    names = (
        "history_id", "event", "version", "changed_by", "reason", "old_content", "new_content", "proposal",
        "before", "created_at",
    )  # fmt: skip
    statement = select(*(c[name] for name in names)).where(c.tenant_id == tenant_id, c.note_id == note_id)
    if after is not None:
        statement = statement.where(c.history_id > after)
    return statement.order_by(c.history_id).limit(limit)
