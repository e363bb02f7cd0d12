"""HTTP of walking the graph of objects."""

from typing import Any

from litestar import MediaType, Response, Router, post
from litestar.di import NamedDependency
from litestar.params import JSONBody, SkipValidation

from app.objects.traversal import expanding, traversing
from app.objects.traversal.schemas import ExpandAsk, ExpandRead, TraverseAsk, TraverseRead
from app.web.auth import Access
from app.web.requests import Cursors, Db, Who

EXPAND = Access(work="read", besides="expand", scopes=("graph:read",))
READ = Access(work="read", scopes=("graph:read",))
ExpandCap = NamedDependency[SkipValidation[int]]


@post("/graph/expand", opt={"access": EXPAND}, status_code=200, summary="What is around objects", tags=["objects"])
async def expand(db: Db, who: Who, expand_cap: ExpandCap, data: JSONBody[ExpandAsk]) -> Response[ExpandRead]:
    """Level by level from the roots. A node that fails a filter is neither returned nor walked through; roots are
    exempt from filters. Each node comes once, with its smallest depth, in the order of depth and id. Edges are all that
    were crossed from a node of less than maxDepth and have both ends in the answer, in the order of ids; with
    distinctNodes only those by which a node was first reached: from the lowest id, over the heaviest edge.

    Of one node the heaviest limitEdgesPerNode edges that pass the filters are crossed (of equal weight the highest id;
    those without a weight last), out and in together. limitNodes takes the lowest ids of the level in which it is
    reached, and ends the walk; limitEdges ends it after the level in which it is exceeded, and takes the nearest, then
    the lowest ids; paths may then run over edges that are not told. Nodes and edges are 32 MB each at the most: ask for
    fewer fields where that is too little. `meta.truncated` and `overflowType` tell when a bound has left something
    out; maxDepth is none.

    dedupe says which paths returnPaths adds, 10,000 at the most: `node` the first and shortest to each node; `edge` for
    each edge the way by which it was first crossed; `path` all simple paths up to maxDepth, and then edges are those of
    the paths. phases are hops of their own, one after the other: each goes on from all that the one before has reached,
    and the walk ends when one reaches nothing. What stands beside phases holds in each that does not say otherwise;
    filters beside them hold in all.

    Filters are `{"path": {"operator": value}}`, `{"path": value}` or a list of `{path, operator, value}`; all have to
    hold. A path is a JSON Pointer, dotted or a bare name: the name of a field, or else of a property. Operators:
    equals, notEquals, greaterThan, greaterThanOrEqual, lessThan, lessThanOrEqual (=, ==, !=, >, >=, <, <=), contains,
    startsWith, endsWith, in, notIn, exists. Only numbers are compared with numbers and strings with strings, these by
    their bytes; what is missing equals nothing. With `time` only what is in effect and valid then is there, roots
    included."""
    body = await expanding.expand(db, who, ask=data, cap=expand_cap)
    return Response(body, media_type=MediaType.JSON)  # type: ignore[return-value]


@post("/graph/traverse", opt={"access": READ}, status_code=200, summary="Walk objects in pages", tags=["objects"])
async def traverse(db: Db, who: Who, cursors: Cursors, data: JSONBody[TraverseAsk]) -> Response[TraverseRead]:
    """Level by level from the roots, nodes in the order of depth and id, a page at a time. Filters apply to roots too;
    a node that fails one is neither returned nor walked through. max_nodes takes the lowest ids of a level, max_edges
    the nearest edges; where one of them leaves something out, `truncated` says so and the walk ends there. Each page
    walks anew: what is written in between may move nodes."""
    body = await traversing.traverse(db, who, ask=data, cursors=cursors)
    return Response(body, media_type=MediaType.JSON)  # type: ignore[return-value]


handlers: list[Any] = [expand, traverse]
router = Router(path="/", route_handlers=handlers)
