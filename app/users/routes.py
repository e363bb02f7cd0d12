"""HTTP of users and threads."""

from collections.abc import AsyncGenerator
from typing import Annotated, Any

from litestar import Response, Router, delete, get
from litestar.params import FromPath, QueryParameter
from litestar.response import Stream

from app.access import Principal, parse_user_id
from app.errors import BadRequest
from app.notes import forgetting
from app.notes.routes import CheckHeld
from app.notes.schemas import NoteFilter, NotesForget, NotesForgotten
from app.paging import Page
from app.users import export, service
from app.users.schemas import ThreadList, Turns, UserErased, UserList, UserProfile, UserReceipt
from app.web.auth import Access
from app.web.requests import ConfirmToken, Cursor, Cursors, Db, Idempotent, Limit, Who, respond

READ = Access(work="read", scopes=("notes:read", "facts:read"))
EXPORT = Access(work="read", cost=4, scopes=("notes:read", "facts:read"))
WRITE = Access(work="write", scopes=("notes:write",))
ADMIN = Access(work="admin", scopes=("admin",), kinds=("admin",))


@get("/users", opt={"access": READ}, summary="List users", tags=["users"])
async def list_users(db: Db, who: Who, cursors: Cursors, limit: Limit = 50, cursor: Cursor = None) -> UserList:
    """The end users of whom something is stored, by their ids. Users need no registration: whoever is named in
    `user_id` or `X-User-Id` when something is written is one."""
    return await service.list_users(db, who, page=Page(cursors, who, "users", limit=limit, cursor=cursor))


@get("/users/{user_id:str}", opt={"access": READ}, summary="Get the profile of a user", tags=["users"])
async def get_user(db: Db, who: Who, cursors: Cursors, user_id: FromPath[str]) -> UserProfile:
    """How much is stored of the user, and what is believed now of what is theirs: as facts, and as lines for a prompt.
    What is common to all users is not part of it."""
    return await service.get_profile(db, who, user=user_id, signer=cursors)


@get("/users/{user_id:str}/export", opt={"access": EXPORT}, summary="Export everything of a user", tags=["users"])
async def export_user(
    db: Db, who: Who, cursors: Cursors, check_held_notes: CheckHeld, user_id: FromPath[str]
) -> Stream:
    """Streams NDJSON: one line for each of the user's entities, documents, notes with their history, and facts of all
    times, `{"kind": ..., ...}`; the last line, `{"kind": "end", ...}`, has the counts."""
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
async def get_receipt(db: Db, who: Who, user_id: FromPath[str]) -> UserReceipt:
    """For administrators. It names the user by a hash alone: SHA-256 of tenant, project and id, joined by `/`. Verify
    `signature` over `signed` with the public key of /.well-known/palimpsest."""
    return await service.get_receipt(db, who, user=parse_user_id(user_id, "user_id"))


@get("/threads", opt={"access": READ}, summary="List threads", tags=["users"])
async def list_threads(db: Db, who: Who, cursors: Cursors, limit: Limit = 50, cursor: Cursor = None) -> ThreadList:
    """The conversations and documents whose notes you can see, by their ids. Threads of different users are different
    threads, also where their ids are equal."""
    return await service.list_threads(db, who, page=Page(cursors, who, "threads", limit=limit, cursor=cursor))


@get("/threads/{thread_id:str}", opt={"access": READ}, summary="Get the turns of a thread", tags=["users"])
async def get_thread(
    db: Db, who: Who, cursors: Cursors, thread_id: FromPath[str], limit: Limit = 50, cursor: Cursor = None
) -> Turns:
    """The live notes of the thread by `position`, then by `occurred_at`: those of the user in X-User-Id, or without one
    those common to all users."""
    page = Page(cursors, who, "thread", limit=limit, cursor=cursor, thread_id=thread_id)
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


handlers: list[Any] = [
    list_users, get_user, export_user, erase_user, get_receipt, list_threads, get_thread, delete_thread,
]  # fmt: skip
router = Router(path="/", route_handlers=handlers)
