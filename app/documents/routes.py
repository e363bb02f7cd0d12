"""HTTP routes of documents."""

from typing import Annotated, Any
from uuid import UUID

from litestar import Response, Router, delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter, SkipValidation

from app.access import as_user
from app.confirmations import Confirmation
from app.documents import service
from app.documents.fetcher import FetchRules
from app.documents.schemas import (
    ChunkList,
    DocumentCreate,
    DocumentCreated,
    DocumentList,
    DocumentRead,
    DocumentRetried,
    DocumentStatus,
    SourceType,
)
from app.errors import BadRequest
from app.paging import Page
from app.tenancy.schemas import SYNONYMS, VisibilityIn
from app.web.auth import Access
from app.web.reference import also
from app.web.requests import ConfirmToken, Cursor, Cursors, Db, Idempotent, IncludeTotal, Limit, Who, respond

READ = Access(work="read", scopes=("notes:read",))
WRITE = Access(work="write", scopes=("notes:write",))
CREATE = Access(work="write", scopes=("notes:write",), user_in_body=True)
Rules = NamedDependency[SkipValidation[FetchRules]]


@post(
    "/documents",
    opt={"access": CREATE},
    summary="Create a document",
    tags=["documents"],
    responses=also(
        200,
        DocumentCreated,
        "A live document with the same content exists and is returned; if it had failed, it is retried.",
    ),
)
async def create_document(
    db: Db, who: Who, idempotent: Idempotent, fetch_rules: Rules, data: JSONBody[DocumentCreate]
) -> Response[DocumentCreated]:
    """Takes a long text, a file or the URL of a page. A job splits it into chunks and stores them as notes; follow it
    by `job_id` or by the document's status.

    Returns 413 `document_too_large` over the project's document_max_content_bytes. A URL that cannot be fetched is
    refused at once: 400 `document_url_invalid`, 403 `document_fetch_refused` or `document_fetch_off`.
    """
    who = as_user(who, data.user_id)
    return respond(
        await idempotent.run(
            db, who, lambda session: service.create_document(session, who, data=data, rules=fetch_rules)
        )
    )


@get("/documents", opt={"access": READ}, summary="List documents", tags=["documents"])
async def list_documents(
    db: Db,
    who: Who,
    cursors: Cursors,
    status: Annotated[DocumentStatus | None, QueryParameter(description="Only documents with this status.")] = None,
    source_type: Annotated[SourceType | None, QueryParameter(description="Only documents of this type.")] = None,
    agent: Annotated[str | None, QueryParameter(max_length=128, description="Only documents by this agent.")] = None,
    visibility: Annotated[
        VisibilityIn | None, QueryParameter(name="scope", description="Only documents of this scope.")
    ] = None,
    garden: Annotated[
        UUID | None, QueryParameter(description="Only documents in this garden; 403 unless you are a member.")
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    include_total: IncludeTotal = False,
) -> DocumentList:
    """Lists the live documents you can see, newest first."""
    filters: dict[str, Any] = {
        "status": status,
        "source_type": source_type,
        "agent_id": agent,
        "scope": None if visibility is None else SYNONYMS.get(visibility, visibility),
        "garden_id": None if garden is None else str(garden),
    }
    page = Page(cursors, who, "documents", limit=limit, cursor=cursor, include_total=include_total, **filters)
    return await service.list_documents(db, who, filters=filters, page=page)


@get("/documents/{document_id:uuid}", opt={"access": READ}, summary="Get a document", tags=["documents"])
async def get_document(db: Db, who: Who, document_id: FromPath[UUID]) -> DocumentRead:
    """Returns the document's status and counts, never its content. Returns 404 when it is unknown, hidden or
    deleted."""
    return await service.get_document(db, who, document_id=document_id)


@get(
    "/documents/{document_id:uuid}/notes",
    opt={"access": READ},
    summary="List the notes of a document",
    tags=["documents"],
)
async def list_chunks(
    db: Db,
    who: Who,
    cursors: Cursors,
    document_id: FromPath[UUID],
    limit: Limit = 50,
    cursor: Cursor = None,
    include_total: IncludeTotal = False,
) -> ChunkList:
    """Lists the document's chunks as notes, in order, without those that were deleted."""
    page = Page(
        cursors, who, "chunks", limit=limit, cursor=cursor, include_total=include_total, document_id=document_id
    )
    return await service.list_chunks(db, who, document_id=document_id, page=page)


@delete("/documents/{document_id:uuid}", opt={"access": WRITE}, summary="Delete a document", tags=["documents"])
async def delete_document(
    db: Db,
    who: Who,
    cursors: Cursors,
    document_id: FromPath[UUID],
    reason: Annotated[
        str | None, QueryParameter(max_length=500, description="Why the document is deleted; required.")
    ] = None,
    force: Annotated[bool, QueryParameter(description="Delete it even if one of its notes is pinned.")] = False,
    confirm_token: ConfirmToken = None,
) -> None:
    """Requires a reason. The notes created for the document are deleted with it, as `DELETE /v1/notes/{note_id}` does,
    and can be recovered for 30 days. A job that is still reading the document stops. Returns 409 `note_pinned` when
    one of the notes is pinned, unless `force`. A document of more than 25 notes needs a `confirm_token`: the first
    request returns 409 `confirmation_required` with it, and the second one sends it within five minutes. While the
    document is still being read, none is needed."""
    if not reason or not reason.strip():
        raise BadRequest("reason: required, as the query parameter ?reason=...", code="reason_required")
    confirmation = Confirmation(
        cursors, who, "delete_document", token=confirm_token, document_id=document_id, force=force
    )
    await service.delete_document(
        db, who, document_id=document_id, reason=reason, force=force, confirmation=confirmation
    )


@post(
    "/documents/{document_id:uuid}/retry",
    opt={"access": WRITE},
    status_code=200,
    summary="Retry a document",
    tags=["documents"],
)
async def retry_document(db: Db, who: Who, document_id: FromPath[UUID]) -> DocumentRetried:
    """Reads a failed document again; chunks that are already stored stay as they are. Returns 409
    `document_not_failed` otherwise."""
    return await service.retry_document(db, who, document_id=document_id)


handlers: list[Any] = [
    create_document, list_documents, get_document, list_chunks, delete_document, retry_document,
]  # fmt: skip
router = Router(path="/", route_handlers=handlers)
