"""HTTP of predicates."""

from typing import Annotated, Any
from uuid import UUID

from litestar import Response, Router, get, patch, post
from litestar.params import FromPath, JSONBody, QueryParameter

from app.facts.names import predicate_name
from app.facts.predicates import service
from app.facts.schemas import (
    AliasCreate,
    PredicateAliasCreated,
    PredicateCreate,
    PredicateList,
    PredicatePatch,
    PredicateRead,
    PredicateWritten,
    Status,
)
from app.paging import Page
from app.web.auth import Access
from app.web.reference import also
from app.web.requests import Cursor, Cursors, Db, Idempotent, IncludeTotal, Limit, Who, respond

READ = Access(work="read", scopes=("facts:read",))
WRITE = Access(work="write", scopes=("facts:write",))


@get("/predicates", opt={"access": READ}, summary="List predicates", tags=["predicates"])
async def list_predicates(
    db: Db,
    who: Who,
    cursors: Cursors,
    status: Annotated[Status | None, QueryParameter(description="Only of this status.")] = None,
    prefix: Annotated[str | None, QueryParameter(max_length=200, description="Only names with this prefix.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    include_total: IncludeTotal = False,
) -> PredicateList:
    """Those of the project, of the tenant and of the installation, in the order of their names."""
    if prefix:
        prefix = predicate_name(prefix, "prefix").norm
    page = Page(
        cursors,
        who,
        "predicates",
        limit=limit,
        cursor=cursor,
        include_total=include_total,
        status=status,
        prefix=prefix,
    )
    return await service.list_predicates(db, who, filters={"status": status, "prefix": prefix}, page=page)


@post(
    "/predicates",
    opt={"access": WRITE},
    summary="Register a predicate",
    tags=["predicates"],
    responses=also(200, PredicateWritten, "It exists already with the same status and cardinality."),
)
async def create_predicate(
    db: Db, who: Who, idempotent: Idempotent, data: JSONBody[PredicateCreate]
) -> Response[PredicateWritten]:
    """For predicates whose cardinality is known beforehand; others are registered as pending and multi when a fact
    first uses them. An active one is registered by administrators and keys with the scope `predicates:admin`; by others
    it is pending, until one of those activates it."""
    return respond(await idempotent.run(db, who, lambda session: service.create_predicate(session, who, data=data)))


@get("/predicates/{predicate_id:uuid}", opt={"access": READ}, summary="Get a predicate", tags=["predicates"])
async def get_predicate(db: Db, who: Who, predicate_id: FromPath[UUID]) -> PredicateRead:
    """404 when it is unknown or of another project."""
    return await service.get_predicate(db, who, predicate_id=predicate_id)


@patch("/predicates/{predicate_id:uuid}", opt={"access": WRITE}, summary="Change a predicate", tags=["predicates"])
async def patch_predicate(
    db: Db, who: Who, predicate_id: FromPath[UUID], data: JSONBody[PredicatePatch]
) -> PredicateWritten:
    """pending can become active or deprecated, active can become deprecated. Activating a predicate, and changing an
    active one, is for administrators and keys with the scope `predicates:admin`. Making a predicate single-valued while
    several values are valid at once is 409 with the facts, unless `resolve` is `latest`. Predicates of the installation
    are read-only (403)."""
    return await service.patch_predicate(db, who, predicate_id=predicate_id, data=data)


@post(
    "/predicates/{predicate_id:uuid}/aliases",
    opt={"access": WRITE},
    summary="Add an alias to a predicate",
    tags=["predicates"],
    responses=also(200, PredicateAliasCreated, "The predicate has that alias already."),
)
async def add_predicate_alias(
    db: Db, who: Who, idempotent: Idempotent, predicate_id: FromPath[UUID], data: JSONBody[AliasCreate]
) -> Response[PredicateAliasCreated]:
    """A name of another predicate of the same scope is 409."""
    return respond(
        await idempotent.run(
            db, who, lambda session: service.add_alias(session, who, predicate_id=predicate_id, data=data)
        )
    )


handlers: list[Any] = [list_predicates, create_predicate, get_predicate, patch_predicate, add_predicate_alias]
router = Router(path="/", route_handlers=handlers)
