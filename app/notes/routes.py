"""HTTP routes of notes."""

from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from litestar import Response, Router, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter, SkipValidation

from app.access import as_user
from app.errors import BadRequest
from app.inputs import parse_moment
from app.notes import forgetting, service
from app.notes.schemas import (
    HistoryList,
    NoteBatch,
    NoteBatchDone,
    NoteCreate,
    NoteList,
    NotePatch,
    NoteRead,
    NoteRecover,
    NotesForget,
    NotesForgotten,
    NoteType,
    NoteWritten,
)
from app.paging import Page
from app.read_context import CheckHeldNotes, ReadContext, parse_as_of
from app.tenancy.schemas import SYNONYMS, VisibilityIn
from app.web.auth import Access
from app.web.reference import also
from app.web.requests import AsOf, Cursor, Cursors, Db, HoldDenied, Idempotent, IncludeTotal, Limit, Who, respond

READ = Access(work="read", scopes=("notes:read",))
WRITE = Access(work="write", scopes=("notes:write",))
CREATE = Access(work="write", scopes=("notes:write",), user_in_body=True)
CheckHeld = NamedDependency[SkipValidation[CheckHeldNotes]]

Time = Annotated[
    str | None, QueryParameter(max_length=40, description="ISO 8601 with a time zone; compared with occurred_at.")
]


@post(
    "/notes",
    opt={"access": CREATE},
    summary="Store a note",
    tags=["notes"],
    responses=also(200, NoteWritten, "A live note with the same content exists and is returned."),
)
async def create_note(
    db: Db,
    who: Who,
    idempotent: Idempotent,
    data: JSONBody[NoteCreate],
    wait: Annotated[
        Literal["extraction"] | None,
        QueryParameter(description="Respond when the extraction has ended, or after `wait_seconds`."),
    ] = None,
    wait_seconds: Annotated[
        float, QueryParameter(ge=0, le=60, description="The longest time to wait for the extraction.")
    ] = 10.0,
) -> Response[NoteWritten]:
    """Returns 201 for a new note, and 200 with `deduplicated: true` when a live note has the same content.

    Where the project has extraction enabled, `job_id` is the job that extracts the note. With `?wait=extraction` the
    response is sent when that job has ended, or after `wait_seconds`; `extraction_status` tells which.
    """
    who = as_user(who, data.user_id)
    response = await idempotent.run(db, who, lambda session: service.create_note(session, who, data=data))
    if wait is not None:
        made = msgspec.json.decode(response.body, type=NoteWritten)
        made = await service.wait_for_extraction(db, who, made=made, seconds=wait_seconds)
        response = msgspec.structs.replace(response, body=msgspec.json.encode(made))
    return respond(response)


@post("/notes/batch", opt={"access": CREATE}, status_code=200, summary="Store many notes", tags=["notes"])
async def create_notes(db: Db, who: Who, idempotent: Idempotent, data: JSONBody[NoteBatch]) -> Response[NoteBatchDone]:
    """Stores up to 1,000 notes in one transaction: all or none by default, with a result for each with
    `atomic: false`."""
    return respond(await idempotent.run(db, who, lambda session: service.create_notes(session, who, data=data)))


@get("/notes", opt={"access": READ}, summary="List notes", tags=["notes"])
async def list_notes(
    db: Db,
    who: Who,
    cursors: Cursors,
    hold_denied: HoldDenied,
    check_held_notes: CheckHeld,
    note_type: Annotated[NoteType | None, QueryParameter(name="type", description="Only notes of this type.")] = None,
    tag: Annotated[str | None, QueryParameter(max_length=64, description="Only notes with this tag.")] = None,
    agent: Annotated[str | None, QueryParameter(max_length=128, description="Only notes by this agent.")] = None,
    visibility: Annotated[
        VisibilityIn | None, QueryParameter(name="scope", description="Only notes of this scope.")
    ] = None,
    garden: Annotated[
        UUID | None, QueryParameter(description="Only notes in this garden; 403 unless you are a member.")
    ] = None,
    thread_id: Annotated[str | None, QueryParameter(max_length=200, description="Only notes of this thread.")] = None,
    since: Time = None,
    until: Time = None,
    as_of: AsOf = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    include_total: IncludeTotal = False,
) -> NoteList:
    """Lists the live notes you can see, newest first; with graph:admin:cross-project also those that other projects of
    the tenant share. `since` is inclusive, `until` is exclusive. With `as_of` lists the notes that were live then, with
    the fields they had; only `extraction_status` is the present one. Administrators also see those under legal hold
    then."""
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
    known = parse_as_of(as_of)
    page = Page(cursors, who, "notes", limit=limit, cursor=cursor, include_total=include_total, as_of=known, **filters)
    context = ReadContext.of(who, as_of=known, hold_denied=hold_denied, shared=True)
    return await service.list_notes(db, context, filters=filters, page=page, check_held=check_held_notes)


@get("/notes/{note_id:uuid}", opt={"access": READ}, summary="Get a note", tags=["notes"])
async def get_note(
    db: Db, who: Who, hold_denied: HoldDenied, check_held_notes: CheckHeld, note_id: FromPath[UUID], as_of: AsOf = None
) -> NoteRead:
    """Returns the note, or with `as_of` as it was then, to administrators also under legal hold. Returns 404 when the
    note is unknown, hidden or deleted, or was at that time."""
    context = ReadContext.of(who, as_of=parse_as_of(as_of), hold_denied=hold_denied, shared=True)
    return await service.get_note(db, context, note_id=note_id, check_held=check_held_notes)


@patch("/notes/{note_id:uuid}", opt={"access": WRITE}, summary="Change a note", tags=["notes"])
async def patch_note(db: Db, who: Who, note_id: FromPath[UUID], data: JSONBody[NotePatch]) -> NoteWritten:
    """Requires a reason. With `if_version` the change is refused when the note is at another version
    (409 `version_conflict`)."""
    return await service.patch_note(db, who, note_id=note_id, data=data)


@delete("/notes/{note_id:uuid}", opt={"access": WRITE}, summary="Delete a note", tags=["notes"])
async def delete_note(
    db: Db,
    who: Who,
    note_id: FromPath[UUID],
    reason: Annotated[
        str | None, QueryParameter(max_length=500, description="Why the note is deleted; required.")
    ] = None,
    if_version: Annotated[
        int | None, QueryParameter(ge=1, le=2**31 - 1, description="Refuse when the note is at another version.")
    ] = None,
    force: Annotated[bool, QueryParameter(description="Delete it even if it is pinned.")] = False,
) -> None:
    """Requires a reason. Notes derived from it are deleted with it, and facts that no other live note supports are
    retracted with kind `note_deleted`. Recovering the note within 30 days restores exactly those. Returns 409
    `note_pinned` for a pinned note unless `force`."""
    if not reason or not reason.strip():
        raise BadRequest("reason: required, as the query parameter ?reason=...", code="reason_required")
    await service.delete_note(db, who, note_id=note_id, reason=reason, if_version=if_version, force=force)


@post("/notes/{note_id:uuid}/recover", opt={"access": WRITE}, status_code=200, summary="Recover a note", tags=["notes"])
async def recover_note(db: Db, who: Who, note_id: FromPath[UUID], data: JSONBody[NoteRecover]) -> NoteWritten:
    """Recovers a note within 30 days of its deletion, with the notes and facts that went with it. Returns 409
    `note_duplicate` when another live note has the same content by now."""
    return await service.recover_note(db, who, note_id=note_id, data=data)


@post("/notes/forget", opt={"access": WRITE}, status_code=200, summary="Forget many notes", tags=["notes"])
async def forget_notes(db: Db, who: Who, cursors: Cursors, data: JSONBody[NotesForget]) -> NotesForgotten:
    """Deletes every note that matches the filter, up to 10,000, as `DELETE /v1/notes/{note_id}` deletes one. Notes that
    you cannot see, or that are in gardens where you cannot write, stay; so do pinned ones, unless `force`.

    With `dry_run` nothing is written: the response has the counts, a sample and a `confirm_token`. Deleting more than
    25 notes needs that token (409 `confirmation_required`). It is valid for five minutes, for the same key and filter,
    and for exactly these notes (409 `confirmation_outdated`)."""
    return await forgetting.forget_notes(db, who, data=data, signer=cursors)


@get("/notes/{note_id:uuid}/history", opt={"access": READ}, summary="List the history of a note", tags=["notes"])
async def list_history(
    db: Db,
    who: Who,
    cursors: Cursors,
    note_id: FromPath[UUID],
    limit: Limit = 50,
    cursor: Cursor = None,
    include_total: IncludeTotal = False,
) -> HistoryList:
    """Lists every change with its reason, oldest first, also for a deleted note."""
    page = Page(cursors, who, "history", limit=limit, cursor=cursor, include_total=include_total, note_id=note_id)
    return await service.list_history(db, who, note_id=note_id, page=page)


handlers: list[Any] = [
    create_note, create_notes, list_notes, get_note, patch_note, delete_note, recover_note, forget_notes, list_history,
]  # fmt: skip
router = Router(path="/", route_handlers=handlers)
