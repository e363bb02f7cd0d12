"""Use cases of documents: create, read, list, delete, retry."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from app.access import Principal, new_id, require_own, require_project
from app.audit import events as audit
from app.confirmations import Confirmation
from app.db.counts import COUNT_LIMIT
from app.db.database import Database, Row, Session
from app.db.retries import retried
from app.documents import queries
from app.documents.fetcher import FetchRules
from app.documents.schemas import (
    ChunkList,
    ChunkRead,
    DocumentCreate,
    DocumentCreated,
    DocumentList,
    DocumentRead,
    DocumentRetried,
)
from app.documents.sources import read_source
from app.errors import Conflict, NotFound
from app.inputs import as_utc
from app.jobs.queue import NewJob, enqueue
from app.notes import storage as notes
from app.outcomes import Outcome
from app.paging import Page
from app.tenancy import gardens
from app.tenancy.schemas import SYNONYMS
from app.tenancy.settings import PipelineSettings, find_settings, load_settings

JOB_KIND = "document_ingest"
# The chunks of a document are the thread document:<id>.
THREAD_KIND = "document"


async def create_document(
    session: Session, who: Principal, *, data: DocumentCreate, rules: FetchRules
) -> Outcome[DocumentCreated]:
    """Store a document and queue the job that reads it, or return the live document that has the same content."""
    settings = await load_settings(session, who)
    row = _new_row(who, data, rules, settings)
    if row["garden_id"] is not None:
        await gardens.require_writable(session, who, garden_id=UUID(row["garden_id"]), scope=row["scope"])
    await queries.serialise(session, row=row)
    found = await queries.find_same(session, row=row)
    if found is None:
        await queries.insert_document(session, row=row)
        await _enqueue(session, who, row, settings)
    elif found["status"] == "failed":
        # Sending a failed document again retries it.
        await _enqueue(session, who, found, settings)
    document_id = str((found or row)["document_id"])
    document = _present(await _read(session, who, document_id))
    created = found is None
    return Outcome(
        DocumentCreated(document=document, deduplicated=not created, job_id=document.job_id), created=created
    )


def _new_row(who: Principal, data: DocumentCreate, rules: FetchRules, settings: PipelineSettings) -> Row:
    scope = SYNONYMS.get(data.scope, data.scope)
    now = datetime.now(UTC)
    garden_id = None if data.garden_id is None else str(data.garden_id)
    return {
        "tenant_id": who.tenant_id,
        "document_id": new_id(),
        "project_id": require_project(who),
        "agent_id": who.agent_id,
        "scope": scope,
        "garden_id": garden_id,
        "user_id": who.owner_user,
        "owner_key": notes.owner_key(who, scope=scope, garden_id=garden_id),
        **read_source(data, rules, settings.document_max_content_bytes),
        "title": None if data.title is None else " ".join(data.title.split()) or None,
        "tags": list(dict.fromkeys(data.tags)),
        "author": data.author,
        "occurred_at": now if data.occurred_at is None else as_utc(data.occurred_at, "occurred_at"),
        "created_at": now,
        "updated_at": now,
    }


async def _enqueue(session: Session, who: Principal, document: Row, settings: PipelineSettings) -> str:
    document_id = str(document["document_id"])
    garden_id = None if document["garden_id"] is None else str(document["garden_id"])
    job = NewJob(
        kind=JOB_KIND,
        payload={"document_id": document_id, "garden_id": garden_id},
        dedupe_key=document_id,
        max_attempts=settings.worker_max_retries,
    )
    job_id = await enqueue(session, who, job=job)
    values = {"status": "queued", "error": None, "job_id": job_id}
    await queries.update_document(session, tenant_id=who.tenant_id, document_id=document_id, **values)
    return job_id


async def _read(session: Session, who: Principal, document_id: str) -> Row:
    row = await session.row(queries.select_document(tenant_id=who.tenant_id, document_id=document_id))
    if row is None:
        raise document_not_found()
    return row


def _present(row: Row) -> DocumentRead:
    fields: dict[str, Any] = {name: row[name] for name in DocumentRead.__struct_fields__}
    fields["user_id"] = row["user_id"] or None
    for name in ("document_id", "garden_id", "job_id"):
        fields[name] = None if fields[name] is None else UUID(str(fields[name]))
    return DocumentRead(**fields)


async def get_document(db: Database, who: Principal, *, document_id: UUID) -> DocumentRead:
    """Return a live document that the caller can see, or raise NotFound."""
    rows = await db.fetch(who, queries.select_document(tenant_id=who.tenant_id, document_id=str(document_id)))
    if not rows:
        raise document_not_found()
    return _present(rows[0])


async def find_titles(db: Database, who: Principal, *, threads: Iterable[str | None]) -> dict[str, str]:
    """Return the title, or else the address, of the documents that threads of chunks belong to, by thread."""
    ids = {thread: found for thread in threads if thread and (found := as_document_id(thread))}
    if not ids:
        return {}
    statement = queries.select_titles(tenant_id=who.tenant_id, document_ids=sorted(set(ids.values())))
    named = {str(row["document_id"]): row["title"] or row["source_url"] for row in await db.fetch(who, statement)}
    return {thread: named[found] for thread, found in ids.items() if named.get(found)}


def as_document_id(thread: str) -> str | None:
    """Return the id of the document whose chunks are in a thread, or None."""
    kind, _, text = thread.partition(":")
    try:
        return str(UUID(text)) if kind == THREAD_KIND else None
    except ValueError:
        return None


async def list_documents(db: Database, who: Principal, *, filters: dict[str, Any], page: Page) -> DocumentList:
    """Return a page of live documents, newest first; raise Forbidden for a garden the caller is no member of."""
    if filters.get("garden_id") is not None:
        async with db.tenant(who) as session:
            await gardens.require_readable(session, who, garden_id=UUID(filters["garden_id"]))
    after = None if page.after is None else (datetime.fromisoformat(page.after[0]), page.after[1])
    found = await db.fetch(who, queries.select_documents(who, filters=filters, after=after, limit=page.limit + 1))
    rows, next_cursor = page.cut(found, key=lambda row: [row["created_at"].isoformat(), str(row["document_id"])])
    every = queries.select_documents(who, filters=filters, after=None, limit=COUNT_LIMIT)
    total = await page.count_rows(db, who, every)
    return DocumentList(documents=[_present(row) for row in rows], next_cursor=next_cursor, total=total)


async def list_chunks(db: Database, who: Principal, *, document_id: UUID, page: Page) -> ChunkList:
    """Return a page of the live notes of a document, in the order of its chunks."""
    await get_document(db, who, document_id=document_id)
    after = None if page.after is None else page.after[0]
    place = {"tenant_id": who.tenant_id, "document_id": str(document_id)}
    found = await db.fetch(who, queries.select_chunks(**place, after=after, limit=page.limit + 1))
    rows, next_cursor = page.cut(found, key=lambda row: [row["chunk_index"]])
    chunks = [ChunkRead(**notes.note_fields(row), chunk_index=row["chunk_index"]) for row in rows]
    total = await page.count_rows(db, who, queries.select_chunks(**place, after=None, limit=COUNT_LIMIT))
    return ChunkList(notes=chunks, next_cursor=next_cursor, total=total)


async def delete_document(
    db: Database, who: Principal, *, document_id: UUID, reason: str, force: bool, confirmation: Confirmation
) -> None:
    """Delete a document and the notes created for it, as notes are deleted; a job that is reading it stops.

    Raise Conflict for more than 25 notes without confirmation, and when one of them is pinned, unless `force`. While it
    is being read no confirmation is needed, since its notes change with every moment.
    """
    key = {"tenant_id": who.tenant_id, "document_id": str(document_id)}

    async def write() -> None:
        async with db.tenant(who) as session:
            document = await _lock(session, who, document_id)
            # A document may have 100,000 notes.
            await session.execute(queries.NO_TIMEOUT)
            owned = await queries.list_owned_notes(session, **key)
            if not force:
                await notes.require_unpinned(session, who, note_ids=owned)
            if document["status"] in ("done", "failed"):
                confirmation.require(await notes.list_dependent_notes(session, who, note_ids=owned))
            gone = await notes.delete_notes(session, who, note_ids=owned, reason=reason, key_id=who.key_id)
            await queries.update_document(session, **key, deleted_at=datetime.now(UTC), raw_content=None)
            await audit.record(
                session,
                "document_write",
                key_id=who.key_id,
                action="delete",
                document_id=str(document_id),
                **gone.counts(),
            )

    await retried(write)


async def delete_in_garden(session: Session, who: Principal, *, garden_id: UUID) -> int:
    """Delete the documents of a garden, whose notes the caller has deleted; return how many there were."""
    return await queries.delete_in_garden(
        session, tenant_id=who.tenant_id, garden_id=str(garden_id), now=datetime.now(UTC)
    )


async def retry_document(db: Database, who: Principal, *, document_id: UUID) -> DocumentRetried:
    """Queue a failed document again; raise Conflict when it has not failed."""
    settings = await find_settings(db, who)
    async with db.tenant(who) as session:
        await _lock(session, who, document_id)
        row = await _read(session, who, str(document_id))
        if row["status"] != "failed":
            raise Conflict(
                f"Only a failed document can be retried; this one is {row['status']}.", code="document_not_failed"
            )
        job_id = await _enqueue(session, who, row, settings)
        document = _present(await _read(session, who, str(document_id)))
        return DocumentRetried(document=document, job_id=UUID(job_id))


async def _lock(session: Session, who: Principal, document_id: UUID) -> Row:
    document = await queries.lock_document(session, tenant_id=who.tenant_id, document_id=str(document_id))
    if document is None or document["project_id"] != who.project_id:
        raise document_not_found()
    require_own(who, document["user_id"], "The document")
    if document["garden_id"] is not None:
        garden = UUID(str(document["garden_id"]))
        await gardens.require_writable(session, who, garden_id=garden, existing=True)
    return document


def document_not_found() -> NotFound:
    """Return the error for a document that is unknown, hidden, deleted or of another tenant."""
    return NotFound("There is no such document.", code="document_not_found")
