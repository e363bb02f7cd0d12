"""HTTP of the upkeep of facts."""

from typing import Annotated
from uuid import UUID

from litestar import Response, Router, delete, get, post, put
from litestar.params import FromPath, JSONBody, QueryParameter

from app.facts.upkeep import conflicts, decay, sources
from app.facts.upkeep.schemas import (
    ConflictList,
    ConflictRead,
    ConflictResolve,
    ConflictResolved,
    ConflictStatus,
    DecayPolicyCreate,
    DecayPolicyCreated,
    DecayPolicyList,
    DecaySweep,
    DecaySwept,
    SourceList,
    SourcePut,
    SourceWritten,
)
from app.paging import Page
from app.web.auth import Access
from app.web.reference import also
from app.web.requests import Cursor, Cursors, Db, Idempotent, Limit, Who, respond

READ = Access(work="read", scopes=("facts:read",))
WRITE = Access(work="write", scopes=("facts:write",))
READ_RULES = Access(work="read", scopes=("facts:read", "admin"))
DECIDE = Access(work="admin", scopes=("admin",), kinds=("admin",))


@get("/conflicts", opt={"access": READ}, summary="List conflicts", tags=["truth"])
async def list_conflicts(
    db: Db,
    who: Who,
    cursors: Cursors,
    status: Annotated[ConflictStatus | None, QueryParameter(description="Only open or resolved ones.")] = None,
    entity: Annotated[
        str | None, QueryParameter(max_length=512, description="About this entity: name, alias, URI or id.")
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ConflictList:
    """Pairs of values that cannot both hold, newest first, with both facts."""
    page = Page(cursors, who, "conflicts", limit=limit, cursor=cursor, status=status, entity=entity)
    return await conflicts.list_conflicts(db, who, status=status, entity=entity, page=page)


@get("/conflicts/{conflict_id:uuid}", opt={"access": READ}, summary="One conflict", tags=["truth"])
async def get_conflict(db: Db, who: Who, conflict_id: FromPath[UUID]) -> ConflictRead:
    """404 when it is unknown, or about facts the caller cannot see."""
    return await conflicts.get_conflict(db, who, conflict_id=conflict_id)


@post(
    "/conflicts/{conflict_id:uuid}/resolve",
    opt={"access": WRITE},
    status_code=200,
    summary="Resolve a conflict",
    tags=["truth"],
)
async def resolve_conflict(
    db: Db, who: Who, conflict_id: FromPath[UUID], data: JSONBody[ConflictResolve]
) -> ConflictResolved:
    """With a `winner` of the two or a new `value`: what holds is held for certain (confidence 1) and records that it
    resolves the others, which are taken back and stay as history."""
    return await conflicts.resolve_conflict(db, who, conflict_id=conflict_id, data=data)


@get("/decay/policies", opt={"access": READ_RULES}, summary="List decay policies", tags=["truth"])
async def list_policies(
    db: Db, who: Who, cursors: Cursors, limit: Limit = 50, cursor: Cursor = None
) -> DecayPolicyList:
    """Those of the project, oldest first."""
    page = Page(cursors, who, "decay_policies", limit=limit, cursor=cursor)
    return await decay.list_policies(db, who, page=page)


@post(
    "/decay/policies",
    opt={"access": DECIDE},
    summary="Make a decay policy",
    tags=["truth"],
    responses=also(200, DecayPolicyCreated, "It was there already, as asked."),
)
async def create_policy(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[DecayPolicyCreate]
) -> Response[DecayPolicyCreated]:
    """For administrators. Of several that fit a fact the most specific one counts: relation and scope, relation, scope,
    all. There is none by default. Swept every hour."""
    return respond(await decay.create_policy(db, who, data=data, once=idempotent))


@delete("/decay/policies/{policy_id:uuid}", opt={"access": DECIDE}, summary="Remove a decay policy", tags=["truth"])
async def delete_policy(db: Db, who: Who, policy_id: FromPath[UUID]) -> None:
    """For administrators. What it did to facts stays."""
    await decay.delete_policy(db, who, policy_id=policy_id)


@post("/decay/sweep", opt={"access": DECIDE}, status_code=200, summary="Apply decay now", tags=["truth"])
async def sweep(db: Db, who: Who, data: JSONBody[DecaySweep | None] = None) -> DecaySwept:
    """For administrators. Age counts from when a fact was last said or weighed; `dry_run` only tells."""
    return await decay.sweep(db, who, dry_run=data is not None and data.dry_run)


@get("/sources", opt={"access": READ_RULES}, summary="List sources", tags=["truth"])
async def list_sources(db: Db, who: Who, cursors: Cursors, limit: Limit = 50, cursor: Cursor = None) -> SourceList:
    """Registered sources of the project by name, with the trust each has now."""
    return await sources.list_sources(db, who, page=Page(cursors, who, "sources", limit=limit, cursor=cursor))


@put(
    "/sources",
    opt={"access": DECIDE},
    status_code=201,
    summary="Register a source",
    tags=["truth"],
    responses=also(200, SourceWritten, "It was registered already, and is changed."),
)
async def put_source(db: Db, who: Who, idempotent: Idempotent, data: JSONBody[SourcePut]) -> Response[SourceWritten]:
    """For administrators. New facts get the trust of their source within a minute, those already written by the job."""
    return respond(await sources.put_source(db, who, data=data, once=idempotent))


router = Router(
    path="/",
    route_handlers=[
        list_conflicts, get_conflict, resolve_conflict, list_policies, create_policy, delete_policy, sweep,
        list_sources, put_source,
    ],
)  # fmt: skip
