"""HTTP of decay policies."""

from typing import Any
from uuid import UUID

from litestar import Response, Router, delete, get, post
from litestar.params import FromPath, JSONBody

from app.facts.decay import service
from app.facts.decay.schemas import DecayPolicyCreate, DecayPolicyCreated, DecayPolicyList, DecaySweep, DecaySwept
from app.paging import Page
from app.web.auth import Access
from app.web.reference import also
from app.web.requests import Cursor, Cursors, Db, Idempotent, IncludeTotal, Limit, Who, respond

READ = Access(work="read", scopes=("facts:read", "admin"))
ADMIN = Access(work="admin", scopes=("admin",), kinds=("admin",))


@get("/decay/policies", opt={"access": READ}, summary="List decay policies", tags=["truth"])
async def list_policies(
    db: Db, who: Who, cursors: Cursors, limit: Limit = 50, cursor: Cursor = None, include_total: IncludeTotal = False
) -> DecayPolicyList:
    """Policies of the project, oldest first."""
    page = Page(cursors, who, "decay_policies", limit=limit, cursor=cursor, include_total=include_total)
    return await service.list_policies(db, who, page=page)


@post(
    "/decay/policies",
    opt={"access": ADMIN},
    summary="Create a decay policy",
    tags=["truth"],
    responses=also(200, DecayPolicyCreated, "The same policy exists already."),
)
async def create_policy(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[DecayPolicyCreate]
) -> Response[DecayPolicyCreated]:
    """For administrators. The most specific policy that matches a fact applies: relation and scope, relation, scope,
    all. There is none by default. Policies are applied every hour."""
    return respond(await idempotent.run(db, who, lambda session: service.create_policy(session, who, data=data)))


@delete("/decay/policies/{policy_id:uuid}", opt={"access": ADMIN}, summary="Delete a decay policy", tags=["truth"])
async def delete_policy(db: Db, who: Who, policy_id: FromPath[UUID]) -> None:
    """For administrators. Its past effects on facts stay."""
    await service.delete_policy(db, who, policy_id=policy_id)


@post("/decay/sweep", opt={"access": ADMIN}, status_code=200, summary="Apply decay now", tags=["truth"])
async def sweep(db: Db, who: Who, data: JSONBody[DecaySweep | None] = None) -> DecaySwept:
    """For administrators. Age counts from when a fact was last written or its confidence last changed; `dry_run` only
    reports."""
    return await service.sweep(db, who, dry_run=data is not None and data.dry_run)


handlers: list[Any] = [list_policies, create_policy, delete_policy, sweep]
router = Router(path="/", route_handlers=handlers)
