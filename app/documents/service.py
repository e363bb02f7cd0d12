"""Use cases of documents: take in, read, list, forget as a whole, try again."""

import base64
import binascii
import hashlib
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from app.access import Principal, new_id, require_project
from app.db.database import Database, Row, Session
from app.documents import queries
from app.documents.fetching import FetchRefused, FetchRules
from app.documents.schemas import (
    ChunkList,
    ChunkRead,
    DocumentCreate,
    DocumentCreated,
    DocumentList,
    DocumentRead,
    DocumentRetried,
)
from app.errors import BadRequest, Conflict, Forbidden, NotFound, TooLarge
from app.inputs import as_utc
from app.jobs.queue import NewJob, enqueue
from app.notes import queries as note_queries
from app.outcomes import Outcome
from app.paging import Page
from app.tenancy import gardens
from app.tenancy.schemas import SYNONYMS
from app.tenancy.settings import PipelineSettings, find_settings, load_settings

KIND = "document_ingest"
# Said in JSON, a text has no charset of its own any more.
CONTENT_TYPES = {"text": "text/plain", "markdown": "text/markdown", "html": "text/html", "pdf": "application/pdf"}


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
        "owner_key": " ".join(filter(None, (who.agent_id if scope == "agent_private" else "", garden_id))),
        **_source(data, rules, settings.document_max_content_bytes),
        "title": None if data.title is None else " ".join(data.title.split()) or None,
        "tags": list(dict.fromkeys(data.tags)),
        "author": data.author,
        "occurred_at": now if data.occurred_at is None else as_utc(data.occurred_at, "occurred_at"),
        "created_at": now,
        "updated_at": now,
    }


def _source(data: DocumentCreate, rules: FetchRules, limit: int) -> Row:
    """Where it comes from: exactly one of content and address, that fits its type."""
    content = data.content if data.content is not None else data.text
    if data.content is not None and data.text is not None:
        raise BadRequest("text: send content or text, not both.")
    given = content is not None or data.content_base64 is not None
    link = data.url or (None if given else data.source_url)
    source_type = data.source_type or ("url" if link is not None and not given else "text")
    if source_type == "url":
        if link is None or given:
            raise BadRequest("url: a document of type url needs its url, and no content.")
        return _page(link, rules)
    if data.url is not None:
        raise BadRequest(f"url: a document of type {source_type} has content; to fetch a page, say source_type url.")
    if (content is None) == (data.content_base64 is None):
        wanted = "content_base64" if source_type == "pdf" else "content or content_base64"
        raise BadRequest(f"content: a document of type {source_type} needs {wanted}.")
    if source_type == "pdf" and content is not None:
        raise BadRequest("content: a pdf is sent as content_base64.")
    if content is not None:
        raw, content_type = content.encode(errors="replace"), f"{CONTENT_TYPES[source_type]}; charset=utf-8"
    else:
        raw, content_type = _decoded(data.content_base64 or "", limit), CONTENT_TYPES[source_type]
    if len(raw) > limit:
        raise _too_large(limit)
    if not raw.strip():
        raise BadRequest("content: empty.")
    return {
        "source_type": source_type,
        "source_url": data.source_url,
        "raw_content": raw,
        "content_type": content_type,
        "content_bytes": len(raw),
        "content_hash": hashlib.sha256(source_type.encode() + b"\0" + raw).hexdigest(),
    }


def _page(link: str, rules: FetchRules) -> Row:
    try:
        url = str(rules.checked(link.strip()))
    except FetchRefused as problem:
        if problem.code == "document_url_invalid":
            raise BadRequest(f"url: {problem.message}", code=problem.code) from problem
        raise Forbidden(f"url: {problem.message}", code=problem.code) from problem
    # What the page says is not known yet: the same page is the same document, until that is deleted.
    return {
        "source_type": "url",
        "source_url": url,
        "content_hash": hashlib.sha256(b"url\0" + url.encode()).hexdigest(),
    }


def _decoded(content: str, limit: int) -> bytes:
    if len(content) > (limit + 3) * 4 // 3 + len(content) // 70:
        raise _too_large(limit)
    try:
        return base64.b64decode("".join(content.split()), validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest("content_base64: not base64.") from None


def _too_large(limit: int) -> TooLarge:
    return TooLarge(
        f"content: over the {limit} bytes that a document of this project may have (document_max_content_bytes).",
        code="document_too_large",
        details={"document_max_content_bytes": limit},
    )


async def _enqueue(session: Session, who: Principal, document: Row, settings: PipelineSettings) -> str:
    document_id = str(document["document_id"])
    garden_id = None if document["garden_id"] is None else str(document["garden_id"])
    job = NewJob(
        kind=KIND,
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
    shown: dict[str, Any] = {name: row[name] for name in (*queries.SHOWN, "status", "error")}
    for name in ("document_id", "garden_id", "job_id"):
        shown[name] = None if shown[name] is None else UUID(str(shown[name]))
    return DocumentRead(**shown)


async def get_document(db: Database, who: Principal, *, document_id: UUID) -> DocumentRead:
    """One live document in the caller's reach, as it stands."""
    statement = queries.select_document(tenant_id=who.tenant_id, document_id=str(document_id))
    rows = await db.fetch(who, statement)
    if not rows:
        raise document_not_found()
    return _present(rows[0])


async def list_documents(db: Database, who: Principal, *, filters: dict[str, Any], page: Page) -> DocumentList:
    """Live documents, newest first; naming a garden one is no member of is refused."""
    if filters.get("garden_id") is not None:
        async with db.tenant(who) as session:
            await gardens.require_readable(session, who, garden_id=UUID(filters["garden_id"]))
    after = None if page.after is None else (datetime.fromisoformat(page.after[0]), page.after[1])
    statement = queries.select_documents(tenant_id=who.tenant_id, filters=filters, after=after, limit=page.limit + 1)
    rows, next_cursor = page.cut(
        await db.fetch(who, statement), key=lambda row: [row["created_at"].isoformat(), str(row["document_id"])]
    )
    return DocumentList(documents=[_present(row) for row in rows], next_cursor=next_cursor)


async def list_chunks(db: Database, who: Principal, *, document_id: UUID, page: Page) -> ChunkList:
    """The notes of a document, in the order of its chunks."""
    await get_document(db, who, document_id=document_id)
    after = None if page.after is None else page.after[0]
    statement = queries.select_chunks(
        tenant_id=who.tenant_id, document_id=str(document_id), after=after, limit=page.limit + 1
    )
    rows, next_cursor = page.cut(await db.fetch(who, statement), key=lambda row: [row["chunk_index"]])
    return ChunkList(notes=[_present_chunk(row) for row in rows], next_cursor=next_cursor)


def _present_chunk(row: Row) -> ChunkRead:
    shown: dict[str, Any] = dict(row)
    shown["note_id"] = UUID(str(row["note_id"]))
    shown["garden_id"] = None if row["garden_id"] is None else UUID(str(row["garden_id"]))
    return ChunkRead(**shown)


async def delete_document(db: Database, who: Principal, *, document_id: UUID, reason: str) -> None:
    """Forgets a document and the notes made for it, at once; a job that is reading it stops."""
    place = {"tenant_id": who.tenant_id, "document_id": str(document_id)}
    async with db.tenant(who) as session:
        document = await _lock(session, who, document_id)
        now = datetime.now(UTC)
        await session.execute(queries.NO_TIMEOUT)
        forgotten = await session.rows(
            queries.FORGET_ALL,
            {
                "tenant": who.tenant_id,
                "document": str(document_id),
                "agent": who.agent_id,
                "reason": reason,
                "now": now,
            },
        )
        if forgotten:
            await note_queries.queue_notes(
                session,
                tenant_id=who.tenant_id,
                project_id=document["project_id"],
                note_ids=[str(row["note_id"]) for row in forgotten],
            )
        await queries.update_document(session, **place, deleted_at=now, raw_content=None)


async def retry_document(db: Database, who: Principal, *, document_id: UUID) -> DocumentRetried:
    """Has a failed document read again."""
    settings = await find_settings(db, who)
    async with db.tenant(who) as session:
        await _lock(session, who, document_id)
        row = await _read(session, who, str(document_id))
        if row["status"] != "failed":
            raise Conflict(
                f"Only a failed document is tried again; this one is {row['status']}.", code="document_not_failed"
            )
        job_id = await _enqueue(session, who, row, settings)
        document = _present(await _read(session, who, str(document_id)))
        return DocumentRetried(document=document, job_id=UUID(job_id))


async def _lock(session: Session, who: Principal, document_id: UUID) -> Row:
    document = await queries.lock_document(session, tenant_id=who.tenant_id, document_id=str(document_id))
    if document is None or document["project_id"] != who.project_id:
        raise document_not_found()
    if document["garden_id"] is not None:
        garden = UUID(str(document["garden_id"]))
        await gardens.require_writable(session, who, garden_id=garden, scope=document["scope"])
    return document


def document_not_found() -> NotFound:
    """The one answer for a document that is unknown, hidden, deleted or of another tenant."""
    return NotFound("There is no such document.", code="document_not_found")
