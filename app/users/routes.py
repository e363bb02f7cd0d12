"""HTTP of users and threads."""

from collections.abc import AsyncGenerator
from typing import Annotated, Any

from litestar import Response, Router, delete, get, post
from litestar.params import FromPath, JSONBody, QueryParameter
from litestar.response import Stream

from app.access import Principal, as_user, parse_user_id
from app.errors import BadRequest
from app.notes import forgetting
from app.notes.routes import CheckHeld
from app.notes.schemas import NoteFilter, NotesForget, NotesForgotten
from app.paging import Page
from app.recall.routes import Dependencies
from app.users import context, export, service
from app.users.schemas import ContextAsk, ContextRead, ThreadList, Turns, UserErased, UserList, UserProfile, UserReceipt
from app.web.auth import Access
from app.web.requests import ConfirmToken, Cursor, Cursors, Db, Idempotent, IncludeTotal, Limit, Who, respond

READ = Access(work="read", scopes=("notes:read", "facts:read"))
EXPORT = Access(work="read", cost=4, scopes=("notes:read", "facts:read"))
CONTEXT = Access(work="read", cost=2, scopes=("facts:read", "notes:read"), user_in_body=True)
READ_THREADS = Access(work="read", scopes=("notes:read",))
WRITE = Access(work="write", scopes=("notes:write",))
ADMIN = Access(work="admin", scopes=("admin",), kinds=("admin",))


@get("/users", opt={"access": READ}, summary="List users", tags=["users"])
async def list_users(
    db: Db, who: Who, cursors: Cursors, limit: Limit = 50, cursor: Cursor = None, include_total: IncludeTotal = False
) -> UserList:
    """The end users of whom something is stored, by their ids. Users need no registration: the first
    thing that is written with their `user_id` or `X-User-Id` makes them one."""
    page = Page(cursors, who, "users", limit=limit, cursor=cursor, include_total=include_total)
    return await service.list_users(db, who, page=page)


@get("/users/{user_id:str}", opt={"access": READ}, summary="Get the profile of a user", tags=["users"])
async def get_user(db: Db, who: Who, cursors: Cursors, user_id: FromPath[str]) -> UserProfile:
    """How much is stored of the user, and what is believed now of what is theirs: as facts, and as lines for a prompt.
    What is common to all users is not part of it. Facts need the scope facts:read."""
    return await service.get_profile(db, who, user=user_id, signer=cursors)


@get("/users/{user_id:str}/export", opt={"access": EXPORT}, summary="Export everything of a user", tags=["users"])
async def export_user(
    db: Db, who: Who, cursors: Cursors, check_held_notes: CheckHeld, user_id: FromPath[str]
) -> Stream:
    """Streams NDJSON: one line for each of the user's entities, documents, notes with their history, and facts of all
    times, `{"kind": ..., ...}`; the last line, `{"kind": "end", ...}`, has the counts. Only what the key's scopes let
    it read."""
    lines: AsyncGenerator[bytes] = export.export_user(
        db, who, user=user_id, signer=cursors, check_held=check_held_notes
    )
    return Stream(lines, media_type="application/x-ndjson")


@delete("/users/{user_id:str}", opt={"access": ADMIN}, status_code=202, summary="Erase a user", tags=["users"])
async def erase_user(db: Db, who: Who, idempotent: Idempotent, user_id: FromPath[str]) -> Response[UserErased]:
    """For administrators. A job destroys everything of the user, revokes the keys that act for them, and leaves a
    signed receipt: `GET /v1/users/{user_id}/receipt`. It cannot be undone. 409 `legal_hold_active` while a legal hold
    keeps something of theirs."""
    user = parse_user_id(user_id, "user_id")
    return respond(await idempotent.run(db, who, lambda session: service.request_erasure(session, who, user=user)))


@get("/users/{user_id:str}/receipt", opt={"access": ADMIN}, summary="Get the receipt of an erasure", tags=["users"])
async def get_user_receipt(db: Db, who: Who, user_id: FromPath[str]) -> UserReceipt:
    """For administrators. It names the user by a hash alone: SHA-256 of tenant, project and id, joined by `/`. Verify
    `signature` over `signed` with the public key of /.well-known/palimpsest."""
    return await service.get_receipt(db, who, user=parse_user_id(user_id, "user_id"))


@get("/threads", opt={"access": READ_THREADS}, summary="List threads", tags=["users"])
async def list_threads(
    db: Db, who: Who, cursors: Cursors, limit: Limit = 50, cursor: Cursor = None, include_total: IncludeTotal = False
) -> ThreadList:
    """The conversations and documents whose notes you can see, by their ids. Threads of different users are different
    threads, also where their ids are equal."""
    page = Page(cursors, who, "threads", limit=limit, cursor=cursor, include_total=include_total)
    return await service.list_threads(db, who, page=page)


@get("/threads/{thread_id:str}", opt={"access": READ_THREADS}, summary="Get the turns of a thread", tags=["users"])
async def get_thread(
    db: Db,
    who: Who,
    cursors: Cursors,
    thread_id: FromPath[str],
    limit: Limit = 50,
    cursor: Cursor = None,
    include_total: IncludeTotal = False,
) -> Turns:
    """The live notes of the thread by `position`, then by `occurred_at`: those of the user in X-User-Id, or without one
    those common to all users."""
    page = Page(cursors, who, "thread", limit=limit, cursor=cursor, include_total=include_total, thread_id=thread_id)
    return await service.read_thread(db, who, thread_id=thread_id, page=page)


@delete("/threads/{thread_id:str}", opt={"access": WRITE}, status_code=200, summary="Delete a thread", tags=["users"])
async def delete_thread(
    db: Db,
    who: Who,
    cursors: Cursors,
    thread_id: FromPath[str],
    reason: Annotated[str | None, QueryParameter(max_length=500, description="Why; required.")] = None,
    force: Annotated[bool, QueryParameter(description="Delete pinned notes too.")] = False,
    confirm_token: ConfirmToken = None,
) -> NotesForgotten:
    """Deletes the thread's notes as `POST /v1/notes/forget` does, each recoverable for 30 days. More than 25 notes need
    a `confirm_token`, which 409 `confirmation_required` carries."""
    if not reason or not reason.strip():
        raise BadRequest("reason: required, as the query parameter ?reason=...", code="reason_required")
    return await _forget_thread(db, who, cursors, thread_id, reason, force=force, confirm_token=confirm_token)


async def _forget_thread(
    db: Db, who: Principal, cursors: Cursors, thread_id: str, reason: str, *, force: bool, confirm_token: str | None
) -> NotesForgotten:
    data = NotesForget(filter=NoteFilter(thread_id=thread_id), reason=reason, force=force, confirm_token=confirm_token)
    return await forgetting.forget_notes(db, who, data=data, signer=cursors, owner=who.owner_user)


@post("/context", opt={"access": CONTEXT}, status_code=200, summary="Get the context of a prompt", tags=["recall"])
async def get_context(
    db: Db, who: Who, cursors: Cursors, recall_dependencies: Dependencies, data: JSONBody[ContextAsk]
) -> ContextRead:
    """One block for a prompt, within a token budget: what is known of the user, the facts and notes that fit the query
    (by default the last turns), and the last turns of the thread, each thing once. What changes least comes first, so
    that a prompt cache stays warm. Stored text cannot end the frame, begin a line or take a role."""
    who = as_user(who, data.user_id)
    return await context.build_context(db, who, ask=data, dependencies=recall_dependencies, signer=cursors)


handlers: list[Any] = [
    get_context, list_users, get_user, export_user, erase_user, get_user_receipt, list_threads, get_thread,
    delete_thread,
]  # fmt: skip
router = Router(path="/", route_handlers=handlers)
