"""HTTP of conflicts."""

from typing import Annotated, Any
from uuid import UUID

from litestar import Router, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from app.facts.conflicts import service
from app.facts.conflicts.schemas import ConflictList, ConflictRead, ConflictResolve, ConflictResolved, ConflictStatus
from app.paging import Page
from app.read_context import ReadContext, parse_as_of
from app.web.auth import Access
from app.web.requests import AsOf, Cursor, Cursors, Db, HoldDenied, IncludeTotal, Limit, Who

READ = Access(work="read", scopes=("facts:read",))
WRITE = Access(work="write", scopes=("facts:write",))


@get("/conflicts", opt={"access": READ}, summary="List conflicts", tags=["truth"])
async def list_conflicts(
    db: Db,
    who: Who,
    cursors: Cursors,
    hold_denied: HoldDenied,
    status: Annotated[ConflictStatus | None, QueryParameter(description="Only open or resolved ones.")] = None,
    entity: Annotated[
        str | None, QueryParameter(max_length=512, description="About this entity: name, alias, URI or id.")
    ] = None,
    as_of: AsOf = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    include_total: IncludeTotal = False,
) -> ConflictList:
    """Pairs of values that cannot both hold, newest first, with both facts. With `as_of` those that were known then,
    with the status they had."""
    known = parse_as_of(as_of)
    page = Page(
        cursors,
        who,
        "conflicts",
        limit=limit,
        cursor=cursor,
        include_total=include_total,
        status=status,
        entity=entity,
        as_of=known,
    )
    context = ReadContext.of(who, as_of=known, hold_denied=hold_denied)
    return await service.list_conflicts(db, context, status=status, entity=entity, page=page)


@get("/conflicts/{conflict_id:uuid}", opt={"access": READ}, summary="Get a conflict", tags=["truth"])
async def get_conflict(
    db: Db, who: Who, hold_denied: HoldDenied, conflict_id: FromPath[UUID], as_of: AsOf = None
) -> ConflictRead:
    """404 when it is unknown, was not known at `as_of`, or is about facts the caller cannot see."""
    context = ReadContext.of(who, as_of=parse_as_of(as_of), hold_denied=hold_denied)
    return await service.get_conflict(db, context, conflict_id=conflict_id)


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
    """With a `winner` of the two or a new `value`: that fact gets confidence 1 and records that it resolves the others,
    which are retracted and stay as history."""
    return await service.resolve_conflict(db, who, conflict_id=conflict_id, data=data)


handlers: list[Any] = [list_conflicts, get_conflict, resolve_conflict]
router = Router(path="/", route_handlers=handlers)
