"""Use cases of users: list them, what is known of one, erase one; and their threads."""

from typing import Any
from uuid import UUID

import msgspec

from app.access import Principal, as_user, new_id, require_project
from app.db.counts import COUNT_LIMIT, count_query
from app.db.database import Database, Row, Session
from app.db.scope import EVERY_USER, LEGAL_HOLD
from app.errors import Conflict, NotFound
from app.facts import reads
from app.facts.names import last_segment
from app.facts.schemas import FactRead
from app.jobs.queue import NewJob, enqueue
from app.notes import service as notes
from app.outcomes import Outcome
from app.paging import CursorSigner, Page
from app.prompt_text import inline
from app.read_context import ReadContext
from app.recall.rendering import value_text
from app.signing import ALGORITHM, encode_base64
from app.users import queries
from app.users.schemas import (
    ThreadList,
    ThreadRead,
    Turns,
    UserErased,
    UserList,
    UserProfile,
    UserRead,
    UserReceipt,
)

MAX_COUNT = 10_000
PROFILE_FACTS = 100


def _place(who: Principal) -> dict[str, Any]:
    return {"tenant": who.tenant_id, "project": require_project(who)}


def user_not_found() -> NotFound:
    """Return the error for a user of whom nothing is stored that the caller can see."""
    return NotFound("There is no such user: nothing of theirs is stored.", code="user_not_found")


async def _read_users(db: Database, who: Principal, *, after: str | None, only: str | None, limit: int) -> list[Row]:
    params = {
        **_place(who),
        "after": after,
        "only": only,
        "limit": limit,
        "most": MAX_COUNT,
    }
    return await db.query(who, queries.USERS, params)


async def list_users(db: Database, who: Principal, *, page: Page) -> UserList:
    """Return users by their ids; a caller who acts for a user sees that one."""
    only = None if who.user_id == EVERY_USER else who.user_id
    after = None if page.after is None else page.after[0]
    found = await _read_users(db, who, after=after, only=only, limit=page.limit + 1)
    rows, next_cursor = page.cut([row for row in found if _has_rows(row)], key=lambda row: [row["user_id"]])
    params = {**_place(who), "after": None, "only": only, "limit": COUNT_LIMIT, "most": 0}
    total = await page.count(lambda: db.query(who, count_query(queries.USER_IDS), params))
    return UserList(users=[UserRead(**row) for row in rows], next_cursor=next_cursor, total=total)


def _has_rows(row: Row) -> bool:
    return row["last_activity"] is not None


async def get_profile(db: Database, who: Principal, *, user: str, signer: CursorSigner) -> UserProfile:
    """Return a user with what is believed now of what is theirs, or raise NotFound."""
    who = as_user(who, user)
    rows = await _read_users(db, who, after=None, only=who.user_id, limit=1)
    if not rows or not _has_rows(rows[0]):
        raise user_not_found()
    facts = await read_profile(db, who, signer=signer)
    return UserProfile(user=UserRead(**rows[0]), facts=facts, profile="\n".join(profile_line(fact) for fact in facts))


async def read_profile(db: Database, who: Principal, *, signer: CursorSigner) -> list[FactRead]:
    """Return what is believed now of what is the user's, the newest first; none for keys that may not read facts."""
    if "facts:read" not in who.scopes:
        return []
    page = Page(signer, who, "profile", limit=PROFILE_FACTS, cursor=None)
    filters = reads.FactFilters(own=True, include_contradicted=False)
    return (await reads.list_facts(db, ReadContext.of(who), filters=filters, page=page)).facts


def profile_line(fact: FactRead) -> str:
    """Return a fact as one line for a prompt, in which stored text can begin no tag and no line of its own."""
    relation = fact.predicate.name.replace("_", " ")
    return f"- {inline(f'{last_segment(fact.subject.canonical)} {relation} {value_text(fact)}')}"


async def request_erasure(session: Session, who: Principal, *, user: str) -> Outcome[UserErased]:
    """Enqueue the job that destroys everything of a user, or return the open one; raise Conflict under a legal hold.

    The session must be open in the scope of an administrator.
    """
    row = await session.row(queries.REQUEST_ERASURE, {"erasure": new_id(), "user": user, "key": who.key_id})
    assert row is not None
    if row["refused"] is not None:
        raise Conflict("A legal hold keeps something of this user; revoke the hold first.", code="legal_hold_active")
    job = NewJob(
        kind="erase_user",
        payload={"erasure_id": str(row["erasure_id"]), "project_id": who.project_id, "user_id": user},
        dedupe_key=f"erase_user:{row['erasure_id']}",
    )
    # The job belongs to the tenant, so that agents cannot see it.
    whole = msgspec.structs.replace(who, project_id=None, reach="cross_project")
    await session.enter(whole)
    job_id = await enqueue(session, whole, job=job)
    erased = UserErased(erasure_id=row["erasure_id"], job_id=UUID(job_id) if who.key_project is None else None)
    return Outcome(erased, created=False, accepted=True)


async def get_receipt(db: Database, who: Principal, *, user: str) -> UserReceipt:
    """Return the signed receipt of the last erasure of a user or raise NotFound."""
    custodian = msgspec.structs.replace(who, reach=LEGAL_HOLD)
    params = {**_place(who), "user": user}
    rows = await db.query(custodian, queries.RECEIPT, params)
    if not rows:
        raise NotFound(
            "There is no receipt: this user was not erased, or the erasure is not done yet.", code="receipt_not_found"
        )
    (row,) = rows
    return UserReceipt(
        receipt=msgspec.json.decode(row["signed"]),
        signed=row["signed"],
        signature=encode_base64(row["signature"]),
        public_key=encode_base64(row["public_key"]),
        algorithm=ALGORITHM,
    )


async def list_threads(db: Database, who: Principal, *, page: Page) -> ThreadList:
    """Return the threads that the caller can see, by their ids."""
    params: dict[str, Any] = {
        **_place(who),
        "after": None if page.after is None else page.after[0],
        "after_user": None if page.after is None else page.after[1],
        "limit": page.limit + 1,
    }
    found = await db.query(who, queries.THREADS, params)
    rows, next_cursor = page.cut(found, key=lambda row: [row["thread_id"], row["user_id"]])
    for row in rows:
        row["user_id"] = row["user_id"] or None
    every = {**_place(who), "after": None, "after_user": None, "limit": COUNT_LIMIT}
    total = await page.count(lambda: db.query(who, count_query(queries.THREADS), every))
    return ThreadList(threads=[ThreadRead(**row) for row in rows], next_cursor=next_cursor, total=total)


async def read_thread(db: Database, who: Principal, *, thread_id: str, page: Page) -> Turns:
    """Return the notes of a thread in order: the caller's user's, else those common to all users."""
    after = page.after or [None, None, None]
    params: dict[str, Any] = {
        **_place(who),
        "thread": thread_id,
        "user": who.owner_user,
        "after_place": after[0],
        "after_at": after[1],
        "after": after[2],
        "limit": page.limit + 1,
    }
    found = await db.query(who, queries.TURNS, params)
    if not found and page.after is None:
        raise NotFound("There is no such thread.", code="thread_not_found")
    rows, next_cursor = page.cut(
        found, key=lambda row: [row["place"], row["occurred_at"].isoformat(), str(row["note_id"])]
    )
    ids = [str(row["note_id"]) for row in rows]
    by_id = {str(note.note_id): note for note in await notes.read_notes(db, who, ids=ids)}
    every = {**params, "after": None, "limit": COUNT_LIMIT}
    total = await page.count(lambda: db.query(who, count_query(queries.TURNS), every))
    turns = [by_id[note_id] for note_id in ids if note_id in by_id]
    return Turns(notes=turns, next_cursor=next_cursor, total=total)
