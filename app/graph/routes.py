"""HTTP of walking the graph."""

from typing import Annotated, Any, TypeVar, cast

import msgspec
from litestar import Router, get
from litestar.params import QueryParameter

from app.errors import BadRequest
from app.facts.as_of import parse_as_of
from app.graph import walking
from app.graph.schemas import Direction, NeighborList
from app.graph.walking import Walk
from app.inputs import parse_moment
from app.paging import Page
from app.tenancy.schemas import SYNONYMS, Visibility, VisibilityIn
from app.web.auth import Access
from app.web.requests import AsOf, Cursor, Cursors, Db, HoldDenied, Who

READ = Access(work="read", scopes=("graph:read",))
PAGE_SIZE = 20
T = TypeVar("T")


@get("/graph/neighbors", opt={"access": READ}, summary="Who is near an entity", tags=["graph"])
async def find_neighbors(
    db: Db,
    who: Who,
    cursors: Cursors,
    hold_denied: HoldDenied,
    entity: Annotated[
        str | None, QueryParameter(max_length=512, description="Where to start: name, alias, URI or id.")
    ] = None,
    entity_uri: Annotated[str | None, QueryParameter(max_length=512, description="The same as entity.")] = None,
    depth: Annotated[int, QueryParameter(description="How many hops at the most, 1 to 3.")] = 1,
    relation_filter: Annotated[
        str | None,
        QueryParameter(
            max_length=4096,
            description="Only over these relations: names, aliases or ids separated by commas; a * at the end of a "
            "name stands for any ending. No other patterns.",
        ),
    ] = None,
    visibility: Annotated[
        VisibilityIn,
        QueryParameter(name="scope", description="Only over facts of this scope; a walk never crosses into another."),
    ] = "project_shared",
    direction: Annotated[
        Direction, QueryParameter(description="out: from subject to object; in: against it; both: either way.")
    ] = "both",
    min_confidence: Annotated[float, QueryParameter(ge=0, le=1, description="Only over facts at least so sure.")] = 0.1,
    min_trust: Annotated[
        float, QueryParameter(ge=0, le=1, description="Only over facts whose source is at least so trusted.")
    ] = 0.0,
    valid_at: Annotated[
        str | None, QueryParameter(max_length=40, description="Valid at this time; now, or as_of, when absent.")
    ] = None,
    as_of: AsOf = None,
    page_size: Annotated[
        int | None, QueryParameter(ge=1, le=200, description="How many at the most; 20 when absent.")
    ] = None,
    limit: Annotated[int | None, QueryParameter(ge=1, le=200, description="The same as page_size.")] = None,
    cursor: Cursor = None,
) -> NeighborList:
    """Nearest first, then by entity id; each entity once, by a shortest path. Of an entity with very many facts the
    surest are followed (1,000 from the first, 100 from each other; 2,000 entities in all), and `truncated` says so.
    Pages after the first know what was known when the first was read."""
    name, size = _either(entity, entity_uri, "entity", "entity_uri"), _either(page_size, limit, "page_size", "limit")
    if name is None:
        raise BadRequest("entity: say where to start: a name, alias, URI or id.")
    walking.check_depth(depth)
    walk = Walk(
        entity=name,
        depth=depth,
        scope=cast(Visibility, SYNONYMS.get(visibility, visibility)),
        direction=direction,
        relation_filter=relation_filter,
        min_confidence=min_confidence,
        min_trust=min_trust,
        valid_at=parse_moment(valid_at, "valid_at"),
        as_of=parse_as_of(as_of),
    )
    page = Page(cursors, who, "neighbors", limit=size or PAGE_SIZE, cursor=cursor, **msgspec.structs.asdict(walk))
    return await walking.find_neighbors(db, who, walk=walk, page=page, denied=hold_denied)


def _either(one: T | None, other: T | None, name: str, synonym: str) -> T | None:
    if one is not None and other is not None:
        raise BadRequest(f"{name}: give only one of {name} or {synonym}.")
    return one if one is not None else other


handlers: list[Any] = [find_neighbors]
router = Router(path="/", route_handlers=handlers)
