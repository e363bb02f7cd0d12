"""All SQL of documents."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Uuid, and_, case, func, insert, literal, null, or_, select, text, tuple_, update
from sqlalchemy.dialects.postgresql import insert as upsert

from app.db.database import Row, Session
from app.documents.tables import document_notes, documents
from app.jobs.tables import jobs
from app.notes.queries import SHOWN as NOTE_COLUMNS
from app.notes.tables import memory_notes

c = documents.c
SHOWN = (
    "document_id", "source_type", "source_url", "title", "tags", "scope", "garden_id", "agent_id", "author",
    "occurred_at", "content_type", "content_bytes", "chunks_total", "chunks_done", "notes_created",
    "notes_deduplicated", "job_id", "created_at", "updated_at", "completed_at",
)  # fmt: skip
OPEN = ("pending", "leased")

# What a document's row says holds while its job is open. A job may end without its handler: by a lease that ran out
# too often, by being cancelled, by being cleared away. Then the document has failed, whatever its row says.
_is_open = func.coalesce(jobs.c.status.in_(OPEN), False)
_status = case(
    (c.status == "done", "done"), (~_is_open, "failed"), (c.status == "failed", "queued"), else_=c.status
).label("status")
_error = case((c.status == "done", None), else_=func.coalesce(c.error, jobs.c.last_error)).label("error")
_with_job = documents.outerjoin(jobs, and_(jobs.c.tenant_id == c.tenant_id, jobs.c.job_id == c.job_id))
_shown = [*(c[name] for name in SHOWN), _status, _error]

# What was sent is kept for another try; what was fetched is fetched anew.
SENT_CONTENT = case((c.source_type == "url", null()), else_=c.raw_content)

# One at a time for the same content at the same place, until the transaction ends.
_SERIALISE = text("SELECT pg_advisory_xact_lock(hashtextextended(:address, 0))")

NO_TIMEOUT = text("SET LOCAL statement_timeout = 0")

# Forget notes of a document, each with its line of history: all it owns, or those given. Answers their ids.
_FORGET = """
    WITH gone AS (
        UPDATE memory_notes n SET deleted_at = :now, updated_at = :now, version = n.version + 1
        WHERE n.tenant_id = :tenant AND n.deleted_at IS NULL AND n.note_id IN (
            SELECT d.note_id FROM document_notes d
            WHERE d.tenant_id = :tenant AND d.document_id = CAST(:document AS uuid) AND d.owned {those})
        RETURNING n.*
    )
    INSERT INTO memory_history (
        tenant_id, history_id, project_id, note_id, agent_id, scope, garden_id, event, version, changed_by, reason,
        old_content, created_at)
    SELECT g.tenant_id, make_id(), g.project_id, g.note_id, g.agent_id, g.scope, g.garden_id, 'deleted', g.version,
           :agent, :reason, g.content, :now
    FROM gone g
    RETURNING note_id"""
FORGET_ALL = text(_FORGET.format(those=""))
FORGET_SOME = text(_FORGET.format(those="AND d.note_id = ANY (CAST(:notes AS uuid[]))"))


async def serialise(session: Session, *, row: Row) -> None:
    """Waits for whoever stores the same content at the same place."""
    address = "\n".join(
        ("document", *(str(row[name]) for name in ("tenant_id", "project_id", "scope", "owner_key", "content_hash")))
    )
    await session.execute(_SERIALISE, {"address": address})


async def find_same(session: Session, *, row: Row) -> Row | None:
    """The live document of the same content at the same place."""
    same = [c[name] == row[name] for name in ("tenant_id", "project_id", "scope", "owner_key", "content_hash")]
    found = await session.rows(
        select(*_shown)
        .select_from(_with_job)
        .where(*same, c.deleted_at.is_(None))
        .order_by(c.created_at, c.document_id)
        .limit(1)
    )
    return found[0] if found else None


async def insert_document(session: Session, *, row: Row) -> None:
    """Writes a document."""
    await session.execute(insert(documents).values(row))


def select_document(*, tenant_id: str, document_id: str) -> Any:
    """One live document as it stands."""
    return (
        select(*_shown)
        .select_from(_with_job)
        .where(c.tenant_id == tenant_id, c.document_id == document_id, c.deleted_at.is_(None))
    )


def select_documents(*, tenant_id: str, filters: dict[str, Any], after: tuple[datetime, str] | None, limit: int) -> Any:
    """Live documents in the caller's reach, newest first."""
    conditions: list[Any] = [c.tenant_id == tenant_id, c.deleted_at.is_(None)]
    for name in ("source_type", "scope", "garden_id", "agent_id"):
        if (value := filters.get(name)) is not None:
            conditions.append(c[name] == value)
    if (status := filters.get("status")) is not None:
        conditions.append(_status.element == status)
    if after is not None:
        position = tuple_(literal(after[0]), literal(after[1], Uuid(as_uuid=False)))
        conditions.append(tuple_(c.created_at, c.document_id) < position)
    return (
        select(*_shown)
        .select_from(_with_job)
        .where(*conditions)
        .order_by(c.created_at.desc(), c.document_id.desc())
        .limit(limit)
    )


def select_chunks(*, tenant_id: str, document_id: str, after: int | None, limit: int) -> Any:
    """Live notes of a document in the order of its chunks."""
    link, note = document_notes.c, memory_notes.c
    conditions: list[Any] = [
        link.tenant_id == tenant_id,
        link.document_id == document_id,
        note.tenant_id == tenant_id,
        note.deleted_at.is_(None),
        or_(c.chunks_total.is_(None), link.chunk_index < c.chunks_total),
    ]
    if after is not None:
        conditions.append(link.chunk_index > after)
    joined = document_notes.join(memory_notes, note.note_id == link.note_id).join(
        documents, and_(c.tenant_id == link.tenant_id, c.document_id == link.document_id)
    )
    return (
        select(*(note[name] for name in NOTE_COLUMNS), link.chunk_index)
        .select_from(joined)
        .where(*conditions)
        .order_by(link.chunk_index)
        .limit(limit)
    )


async def lock_document(session: Session, *, tenant_id: str, document_id: str) -> Row | None:
    """A live document's row, locked until the transaction ends: who writes its chunks and who deletes it take turns."""
    columns = [*(c[name] for name in SHOWN), c.status, c.error, c.project_id, c.owner_key]
    return await session.row(
        select(*columns)
        .where(c.tenant_id == tenant_id, c.document_id == document_id, c.deleted_at.is_(None))
        .with_for_update()
    )


async def read_content(session: Session, *, tenant_id: str, document_id: str) -> bytes | None:
    """What it came with, or was fetched."""
    row = await session.row(select(c.raw_content).where(c.tenant_id == tenant_id, c.document_id == document_id))
    return None if row is None or row["raw_content"] is None else bytes(row["raw_content"])


async def update_document(session: Session, *, tenant_id: str, document_id: str, **values: Any) -> None:
    """Changes a document's row."""
    await session.execute(
        update(documents)
        .where(c.tenant_id == tenant_id, c.document_id == document_id)
        .values(**values, updated_at=datetime.now(UTC))
    )


async def list_links(session: Session, *, tenant_id: str, document_id: str) -> list[Row]:
    """Which chunks are written, with the hash of what they say; one whose note was deleted counts as written."""
    link, note = document_notes.c, memory_notes.c
    joined = document_notes.join(memory_notes, and_(note.tenant_id == link.tenant_id, note.note_id == link.note_id))
    return await session.rows(
        select(link.chunk_index, link.note_id, link.owned, note.content_hash)
        .select_from(joined)
        .where(link.tenant_id == tenant_id, link.document_id == document_id)
        .order_by(link.chunk_index)
    )


async def put_links(session: Session, *, rows: list[Row]) -> None:
    """Says which notes are which chunks."""
    statement = upsert(document_notes).values(rows)
    key = ["tenant_id", "document_id", "chunk_index"]
    new = statement.excluded
    await session.execute(
        statement.on_conflict_do_update(index_elements=key, set_={"note_id": new.note_id, "owned": new.owned})
    )
