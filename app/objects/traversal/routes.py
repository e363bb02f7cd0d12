"""HTTP of traversal."""

from typing import Any

from litestar import MediaType, Response, Router, post
from litestar.di import NamedDependency
from litestar.params import JSONBody, SkipValidation

from app.objects.traversal.expand import expand as expand_objects
from app.objects.traversal.expand import expand_context
from app.objects.traversal.schemas import ExpandRead, ExpandRequest, TraverseRead, TraverseRequest
from app.objects.traversal.traverse import traverse as traverse_objects
from app.objects.traversal.traverse import traverse_context
from app.web.auth import Access
from app.web.requests import Cursors, Db, HoldDenied, Who

EXPAND = Access(work="read", cost=2, also_counts_as="expand", scopes=("graph:read",))
READ = Access(work="read", cost=2, scopes=("graph:read",))
ExpandCap = NamedDependency[SkipValidation[int]]


@post("/graph/expand", opt={"access": EXPAND}, status_code=200, summary="Expand objects", tags=["objects"])
async def expand(
    db: Db, who: Who, expand_cap: ExpandCap, hold_denied: HoldDenied, data: JSONBody[ExpandRequest]
) -> Response[ExpandRead]:
    """Returns the neighbourhood of the roots, level by level. A node that fails a filter is neither returned nor
    followed; roots are exempt from filters. Each node is returned once, with its smallest depth, ordered by depth and
    id. Edges are all that were followed from a node of less than max_depth and have both ends in the response, ordered
    by id; with distinct_nodes only those by which a node was first reached: from the lowest id, over the heaviest edge.

    Of each node the heaviest limit_edges_per_node edges that pass the filters are followed, outgoing and incoming
    together (for equal weights the highest id; edges without a weight last). limit_nodes keeps the lowest ids of
    the level in which it is reached, and ends the walk. limit_edges ends the walk after the level in which it is
    exceeded, and keeps the nearest edges, then the lowest ids; paths may then contain edges that are not returned.
    Nodes and edges take at most 32 MB each: request fewer fields where that is too little. `meta.truncated` and
    `overflowType` say when a limit has left something out; max_depth does not count as one.

    dedupe says which paths return_paths adds, at most 10,000: `node` the first and shortest to each node; `edge` for
    each edge the path by which it was first followed; `path` all simple paths up to max_depth, and then edges are those
    of the paths. phases are separate hops, one after the other: each starts from all nodes that the one before has
    reached, and the walk ends when one reaches none. Fields beside phases are the defaults of each phase; filters
    beside them hold in all phases.

    Filters are `{"path": {"operator": value}}`, `{"path": value}` or a list of `{path, operator, value}`; all have to
    hold. A path is a JSON Pointer, dotted or a bare name: the name of a field, or else of a property. Operators:
    equals, notEquals, greaterThan, greaterThanOrEqual, lessThan, lessThanOrEqual (=, ==, !=, >, >=, <, <=), contains,
    startsWith, endsWith, in, notIn, exists. Numbers are only compared with numbers and strings with strings, byte by
    byte; a missing value equals nothing. With `time` only objects in effect and relationships valid at that time are
    found, including roots. With `as_of` the walk is over what was recorded then, for administrators also over what is
    under legal hold. Fields in camelCase are the older form and stay accepted."""
    context = expand_context(who, data, hold_denied=hold_denied)
    body = await expand_objects(db, context, request=data, cap=expand_cap)
    return Response(body, media_type=MediaType.JSON)  # type: ignore[return-value]


@post("/graph/traverse", opt={"access": READ}, status_code=200, summary="Traverse objects in pages", tags=["objects"])
async def traverse(
    db: Db, who: Who, cursors: Cursors, hold_denied: HoldDenied, data: JSONBody[TraverseRequest]
) -> Response[TraverseRead]:
    """Walks level by level from the roots and returns nodes ordered by depth and id, one page at a time. Filters apply
    to roots too; a node that fails one is neither returned nor followed. max_nodes keeps the lowest ids of a level,
    max_edges the nearest edges; when one of them leaves something out, `truncated` is true and the walk ends there.
    Each page walks again: writes between two pages may move nodes, except with `as_of`, which walks over what was
    recorded then, for administrators also over what is under legal hold."""
    context = traverse_context(who, data, hold_denied=hold_denied)
    body = await traverse_objects(db, context, request=data, cursors=cursors)
    return Response(body, media_type=MediaType.JSON)  # type: ignore[return-value]


handlers: list[Any] = [expand, traverse]
router = Router(path="/", route_handlers=handlers)
