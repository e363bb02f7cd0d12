"""All SQL of documents."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    DateTime,
    Select,
    Text,
    Uuid,
    and_,
    case,
    column,
    func,
    insert,
    literal,
    null,
    or_,
    select,
    table,
    text,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.types import NullType

from app.db.database import Row, Session
from app.db.scope import Scope
from app.db.users import newest
from app.documents.tables import document_notes, documents
from app.notes.schemas import STORED_FIELDS

c = documents.c
NOTE_UUIDS = ("note_id", "garden_id", "derived_from")
# The columns of other domains' tables that are joined here.
jobs = table(
    "jobs",
    column("tenant_id", Text),
    column("job_id", Uuid(as_uuid=False)),
    column("status", Text),
    column("last_error", Text),
)
memory_notes = table(
    "memory_notes",
    column("tenant_id", Text),
    column("content_hash", Text),
    column("deleted_at", DateTime(timezone=True)),
    *(column(name, Uuid(as_uuid=False) if name in NOTE_UUIDS else NullType()) for name in STORED_FIELDS),
)

COLUMNS = (
    "document_id", "source_type", "source_url", "title", "tags", "scope", "garden_id", "agent_id", "user_id", "author",
    "occurred_at", "content_type", "content_bytes", "chunks_total", "chunks_done", "notes_created",
    "notes_deduplicated", "job_id", "created_at", "updated_at", "completed_at",
)  # fmt: skip
OPEN_JOB = ("pending", "leased")

# The status column holds while the document's job is open. A job may also end without its handler: its lease expires
# too often, it is cancelled, or it is purged. Then the document has failed, whatever its row says.
_is_open = func.coalesce(jobs.c.status.in_(OPEN_JOB), False)
_status = case(
    (c.status == "done", "done"), (~_is_open, "failed"), (c.status == "failed", "queued"), else_=c.status
).label("status")
_error = case((c.status == "done", None), else_=func.coalesce(c.error, jobs.c.last_error)).label("error")
_with_job = documents.outerjoin(jobs, and_(jobs.c.tenant_id == c.tenant_id, jobs.c.job_id == c.job_id))
_columns = [*(c[name] for name in COLUMNS), _status, _error]

# Content that was sent is kept for a retry; a page is fetched again.
SENT_CONTENT = case((c.source_type == "url", null()), else_=c.raw_content)

# Serialise the creation of documents with the same content until the transaction ends.
_SERIALISE = text("SELECT pg_advisory_xact_lock(hashtextextended(:address, 0))")

NO_TIMEOUT = text("SET LOCAL statement_timeout = 0")


async def serialise(session: Session, *, row: Row) -> None:
    """Wait for transactions that create a document with the same identity."""
    address = "\n".join(
        ("document", *(str(row[name]) for name in ("tenant_id", "project_id", "scope", "owner_key", "content_hash")))
    )
    await session.execute(_SERIALISE, {"address": address})


async def find_same(session: Session, *, row: Row) -> Row | None:
    """Return the live document that has the same identity, or None."""
    same = [c[name] == row[name] for name in ("tenant_id", "project_id", "scope", "owner_key", "content_hash")]
    found = await session.rows(
        select(*_columns)
        .select_from(_with_job)
        .where(*same, c.deleted_at.is_(None))
        .order_by(c.created_at, c.document_id)
        .limit(1)
    )
    return found[0] if found else None


async def insert_document(session: Session, *, row: Row) -> None:
    """Insert a document."""
    await session.execute(insert(documents).values(row))


def select_document(*, tenant_id: str, document_id: str) -> Any:
    """Select one live document with its effective status."""
    return (
        select(*_columns)
        .select_from(_with_job)
        .where(c.tenant_id == tenant_id, c.document_id == document_id, c.deleted_at.is_(None))
    )


def select_titles(*, tenant_id: str, document_ids: list[str]) -> Any:
    """Select the titles and addresses of live documents that the caller can see."""
    return select(c.document_id, c.title, c.source_url).where(
        c.tenant_id == tenant_id, c.document_id.in_(document_ids), c.deleted_at.is_(None)
    )


def select_documents(
    who: Scope, *, filters: dict[str, Any], after: tuple[datetime, str] | None, limit: int
) -> Select[Any]:
    """Select live documents that the caller can see, newest first."""
    conditions: list[Any] = [c.tenant_id == who.tenant_id, c.deleted_at.is_(None)]
    for name in ("source_type", "scope", "garden_id", "agent_id"):
        if (value := filters.get(name)) is not None:
            conditions.append(c[name] == value)
    if (status := filters.get("status")) is not None:
        conditions.append(_status.element == status)
    if after is not None:
        position = tuple_(literal(after[0]), literal(after[1], Uuid(as_uuid=False)))
        conditions.append(tuple_(c.created_at, c.document_id) < position)
    found = select(*_columns).select_from(_with_job).where(*conditions)
    return newest(found, (c.created_at, c.document_id), c.user_id, who, limit=limit)


def select_chunks(*, tenant_id: str, document_id: str, after: int | None, limit: int) -> Any:
    """Select the live notes of a document in the order of its chunks."""
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
        select(*(note[name] for name in STORED_FIELDS), link.chunk_index)
        .select_from(joined)
        .where(*conditions)
        .order_by(link.chunk_index)
        .limit(limit)
    )


async def lock_document(session: Session, *, tenant_id: str, document_id: str) -> Row | None:
    """Lock a live document until the transaction ends and return it, so that writing and deleting it exclude each
    other."""
    columns = [*(c[name] for name in COLUMNS), c.status, c.error, c.project_id, c.owner_key]
    return await session.row(
        select(*columns)
        .where(c.tenant_id == tenant_id, c.document_id == document_id, c.deleted_at.is_(None))
        .with_for_update()
    )


async def read_content(session: Session, *, tenant_id: str, document_id: str) -> bytes | None:
    """Return the content that was sent or fetched, or None."""
    row = await session.row(select(c.raw_content).where(c.tenant_id == tenant_id, c.document_id == document_id))
    return None if row is None or row["raw_content"] is None else bytes(row["raw_content"])


async def update_document(session: Session, *, tenant_id: str, document_id: str, **values: Any) -> None:
    """Update the columns of a document."""
    await session.execute(
        update(documents)
        .where(c.tenant_id == tenant_id, c.document_id == document_id)
        .values(**values, updated_at=datetime.now(UTC))
    )


async def list_links(session: Session, *, tenant_id: str, document_id: str) -> list[Row]:
    """Return the chunks that are written, with the hash of their notes, also of deleted notes."""
    link, note = document_notes.c, memory_notes.c
    joined = document_notes.join(memory_notes, and_(note.tenant_id == link.tenant_id, note.note_id == link.note_id))
    return await session.rows(
        select(link.chunk_index, link.note_id, link.owned, note.content_hash)
        .select_from(joined)
        .where(link.tenant_id == tenant_id, link.document_id == document_id)
        .order_by(link.chunk_index)
    )


async def list_owned_notes(session: Session, *, tenant_id: str, document_id: str) -> list[str]:
    """Return the ids of the notes that were created for a document."""
    link = document_notes.c
    rows = await session.rows(
        select(link.note_id).where(link.tenant_id == tenant_id, link.document_id == document_id, link.owned)
    )
    return [str(row["note_id"]) for row in rows]


async def delete_in_garden(session: Session, *, tenant_id: str, garden_id: str, now: datetime) -> int:
    """Mark the live documents of a garden as deleted and return how many there were."""
    statement = update(documents).where(c.tenant_id == tenant_id, c.garden_id == garden_id, c.deleted_at.is_(None))
    rows = await session.rows(
        statement.values(deleted_at=now, raw_content=None, updated_at=now).returning(c.document_id)
    )
    return len(rows)


async def put_links(session: Session, *, rows: list[Row]) -> None:
    """Insert or replace the notes of chunks."""
    statement = upsert(document_notes).values(rows)
    key = ["tenant_id", "document_id", "chunk_index"]
    new = statement.excluded
    await session.execute(
        statement.on_conflict_do_update(index_elements=key, set_={"note_id": new.note_id, "owned": new.owned})
    )
