"""HTTP of the room notes."""

from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from litestar import Response, Router, delete, get, patch, post
from litestar.params import FromPath, JSONBody, QueryParameter

from app.errors import BadRequest
from app.inputs import parse_moment
from app.notes import service
from app.notes.schemas import (
    HistoryList,
    NoteBatch,
    NoteBatchDone,
    NoteCreate,
    NoteCreated,
    NoteList,
    NotePatch,
    NoteRead,
    NoteRecover,
    NoteType,
)
from app.paging import Page
from app.tenancy.schemas import SYNONYMS, VisibilityIn
from app.web.auth import Access
from app.web.reference import also
from app.web.requests import Cursor, Cursors, Db, Idempotent, Limit, Who, respond

READ = Access(work="read", scopes=("notes:read",))
WRITE = Access(work="write", scopes=("notes:write",))

Time = Annotated[str | None, QueryParameter(max_length=40, description="ISO 8601 with a zone, on occurred_at.")]


@post(
    "/notes",
    opt={"access": WRITE},
    summary="Store a note",
    tags=["notes"],
    responses=also(200, NoteCreated, "The same live note was there already."),
)
async def create_note(
    db: Db,
    who: Who,
    idempotent: Idempotent,
    data: JSONBody[NoteCreate],
    wait: Annotated[
        Literal["extraction"] | None, QueryParameter(description="Answer when the note is extracted, or time is over.")
    ] = None,
    wait_seconds: Annotated[float, QueryParameter(ge=0, le=60, description="How long to wait at the most.")] = 10.0,
) -> Response[NoteCreated]:
    """201 when it is new, 200 with `deduplicated: true` when the same live note was there already. Where the project
    has its notes extracted, `job_id` is the job to follow; with `?wait=extraction` the answer comes when it has ended,
    or after `wait_seconds`: `extraction_status` tells which."""
    response = await idempotent.run(db, who, lambda session: service.create_note(session, who, data=data))
    if wait is not None:
        made = msgspec.json.decode(response.body, type=NoteCreated)
        made = await service.wait_for_extraction(db, who, made=made, seconds=wait_seconds)
        response = msgspec.structs.replace(response, body=msgspec.json.encode(made))
    return respond(response)


@post("/notes/batch", opt={"access": WRITE}, status_code=200, summary="Store many notes", tags=["notes"])
async def create_notes(db: Db, who: Who, idempotent: Idempotent, data: JSONBody[NoteBatch]) -> Response[NoteBatchDone]:
    """Up to 1,000 in one transaction: all or none by default; `atomic: false` answers a result for each."""
    return respond(await idempotent.run(db, who, lambda session: service.create_notes(session, who, data=data)))


@get("/notes", opt={"access": READ}, summary="List notes", tags=["notes"])
async def list_notes(
    db: Db,
    who: Who,
    cursors: Cursors,
    note_type: Annotated[NoteType | None, QueryParameter(name="type", description="Only this type.")] = None,
    tag: Annotated[str | None, QueryParameter(max_length=64, description="Only with this tag.")] = None,
    agent: Annotated[str | None, QueryParameter(max_length=128, description="Only by this agent.")] = None,
    visibility: Annotated[VisibilityIn | None, QueryParameter(name="scope", description="Only of this scope.")] = None,
    garden: Annotated[UUID | None, QueryParameter(description="Only in this garden; 403 for strangers.")] = None,
    thread_id: Annotated[str | None, QueryParameter(max_length=200, description="Only of this thread.")] = None,
    since: Time = None,
    until: Time = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> NoteList:
    """Live notes in the caller's reach, newest first. `since` is included, `until` is not."""
    filters: dict[str, Any] = {
        "type": note_type,
        "tag": tag,
        "agent_id": agent,
        "scope": None if visibility is None else SYNONYMS.get(visibility, visibility),
        "garden_id": None if garden is None else str(garden),
        "thread_id": thread_id,
        "since": parse_moment(since, "since"),
        "until": parse_moment(until, "until"),
    }
    page = Page(cursors, who, "notes", limit=limit, cursor=cursor, **filters)
    return await service.list_notes(db, who, filters=filters, page=page)


@get("/notes/{note_id:uuid}", opt={"access": READ}, summary="One note", tags=["notes"])
async def get_note(db: Db, who: Who, note_id: FromPath[UUID]) -> NoteRead:
    """404 when it is unknown, hidden or deleted."""
    return await service.get_note(db, who, note_id=note_id)


@patch("/notes/{note_id:uuid}", opt={"access": WRITE}, summary="Change a note", tags=["notes"])
async def patch_note(db: Db, who: Who, note_id: FromPath[UUID], data: JSONBody[NotePatch]) -> NoteRead:
    """Needs a reason; `if_version` guards against a change in between (409 version_conflict)."""
    return await service.patch_note(db, who, note_id=note_id, data=data)


@delete("/notes/{note_id:uuid}", opt={"access": WRITE}, summary="Forget a note", tags=["notes"])
async def delete_note(
    db: Db,
    who: Who,
    note_id: FromPath[UUID],
    reason: Annotated[str | None, QueryParameter(max_length=500, description="Why; required.")] = None,
    if_version: Annotated[int | None, QueryParameter(ge=1, le=2**31 - 1, description="Only at this version.")] = None,
) -> None:
    """Needs a reason. It can be recovered for 30 days."""
    if not reason or not reason.strip():
        raise BadRequest("reason: say why the note is forgotten, as ?reason=...", code="reason_required")
    await service.delete_note(db, who, note_id=note_id, reason=reason, if_version=if_version)


@post("/notes/{note_id:uuid}/recover", opt={"access": WRITE}, status_code=200, summary="Recover a note", tags=["notes"])
async def recover_note(db: Db, who: Who, note_id: FromPath[UUID], data: JSONBody[NoteRecover]) -> NoteRead:
    """Brings a forgotten note back, within 30 days; 409 when another live note says the same by now."""
    return await service.recover_note(db, who, note_id=note_id, data=data)


@get("/notes/{note_id:uuid}/history", opt={"access": READ}, summary="History of a note", tags=["notes"])
async def list_history(
    db: Db, who: Who, cursors: Cursors, note_id: FromPath[UUID], limit: Limit = 50, cursor: Cursor = None
) -> HistoryList:
    """Every change with its reason, oldest first; also of a deleted note."""
    page = Page(cursors, who, "history", limit=limit, cursor=cursor, note_id=note_id)
    return await service.list_history(db, who, note_id=note_id, page=page)


handlers: list[Any] = [
    create_note, create_notes, list_notes, get_note, patch_note, delete_note, recover_note, list_history,
]  # fmt: skip
router = Router(path="/", route_handlers=handlers)
