"""HTTP of the graph."""

from typing import Annotated, Any, TypeVar, cast

import msgspec
from litestar import Router, get
from litestar.params import QueryParameter

from app.errors import BadRequest
from app.facts.as_of import parse_as_of
from app.graph import service
from app.graph.schemas import Direction, NeighborList
from app.inputs import parse_moment
from app.paging import Page
from app.read_context import ReadContext
from app.tenancy.schemas import SYNONYMS, Visibility, VisibilityIn
from app.web.auth import Access
from app.web.requests import AsOf, Cursor, Cursors, Db, HoldDenied, IncludeTotal, Who

READ = Access(work="read", scopes=("graph:read",))
PAGE_SIZE = 20
T = TypeVar("T")


@get("/graph/neighbors", opt={"access": READ}, summary="Find the neighbors of an entity", tags=["graph"])
async def find_neighbors(
    db: Db,
    who: Who,
    cursors: Cursors,
    hold_denied: HoldDenied,
    entity: Annotated[
        str | None, QueryParameter(max_length=512, description="The entity to start from: name, alias, URI or id.")
    ] = None,
    entity_uri: Annotated[str | None, QueryParameter(max_length=512, description="Synonym of entity.")] = None,
    depth: Annotated[int, QueryParameter(description="At most this many hops, 1 to 3.")] = 1,
    relation_filter: Annotated[
        str | None,
        QueryParameter(
            max_length=4096,
            description="Follow only these relations: names, aliases or ids separated by commas; a * at the end of a "
            "name matches any ending. No other patterns.",
        ),
    ] = None,
    visibility: Annotated[
        VisibilityIn,
        QueryParameter(name="scope", description="Follow only facts of this scope; a path never crosses into another."),
    ] = "project_shared",
    direction: Annotated[
        Direction,
        QueryParameter(description="out: from subject to object; in: from object to subject; both: either way."),
    ] = "both",
    min_confidence: Annotated[
        float, QueryParameter(ge=0, le=1, description="Follow only facts of at least this confidence.")
    ] = 0.1,
    min_trust: Annotated[
        float, QueryParameter(ge=0, le=1, description="Follow only facts whose source has at least this trust.")
    ] = 0.0,
    valid_at: Annotated[
        str | None, QueryParameter(max_length=40, description="What was valid at this time; default now, or as_of.")
    ] = None,
    as_of: AsOf = None,
    page_size: Annotated[
        int | None, QueryParameter(ge=1, le=200, description="At most this many neighbors; default 20.")
    ] = None,
    limit: Annotated[int | None, QueryParameter(ge=1, le=200, description="Synonym of page_size.")] = None,
    cursor: Cursor = None,
    include_total: IncludeTotal = False,
) -> NeighborList:
    """Returns neighbors by distance, then by entity id; each entity once, with a shortest path to it; an empty list and
    `entity: null` when there is no such entity. Of an entity with many facts, those of highest confidence are followed
    (1,000 from the first entity, 100 from each other, 2,000 entities in all); `truncated` says whether a limit applied.
    All pages read what was recorded when the first was read."""
    name, size = _either(entity, entity_uri, "entity", "entity_uri"), _either(page_size, limit, "page_size", "limit")
    if name is None:
        raise BadRequest("entity: required; a name, alias, URI or id.")
    service.check_depth(depth)
    scope = cast(Visibility, SYNONYMS.get(visibility, visibility))
    query = service.NeighborQuery(
        entity=name,
        depth=depth,
        scope=scope,
        direction=direction,
        relation_filter=relation_filter,
        min_confidence=min_confidence,
        min_trust=min_trust,
    )
    valid, known = parse_moment(valid_at, "valid_at"), parse_as_of(as_of)
    filters: dict[str, Any] = {**msgspec.structs.asdict(query), "valid_at": valid, "as_of": known}
    page = Page(
        cursors, who, "neighbors", limit=size or PAGE_SIZE, cursor=cursor, include_total=include_total, **filters
    )
    context = ReadContext.of(who, valid_at=valid, as_of=known, scope=scope, hold_denied=hold_denied)
    return await service.find_neighbors(db, context, query=query, page=page)


def _either(one: T | None, other: T | None, name: str, synonym: str) -> T | None:
    if one is not None and other is not None:
        raise BadRequest(f"{name}: give only one of {name} or {synonym}.")
    return one if one is not None else other


handlers: list[Any] = [find_neighbors]
router = Router(path="/", route_handlers=handlers)
