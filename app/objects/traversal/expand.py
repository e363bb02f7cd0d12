"""Use case of expand: the neighbourhood of some objects in one response, which the database encodes."""

import time
from collections.abc import Iterable
from typing import Any

import msgspec
import structlog
from msgspec import UNSET

from app.access import Principal, require_project
from app.db.database import Database, Row
from app.errors import BadRequest, NotFound
from app.inputs import as_utc
from app.objects.traversal import queries
from app.objects.traversal.filters import Predicate, read_filter
from app.objects.traversal.holds import run_walk
from app.objects.traversal.projection import read_include
from app.objects.traversal.schemas import ExpandMeta, ExpandRequest, Include, Phase, WalkFilters
from app.read_context import ReadContext
from app.telemetry.metrics import observe_walk

log: structlog.stdlib.BoundLogger = structlog.get_logger()

DEFAULT_DEPTH = 2
MAX_PATHS = 10_000
_DIRECTIONS = {"outbound": "out", "inbound": "in", "both": "both"}


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which relationships one hop may follow, and which objects it may reach."""

    direction: str
    edge_types: list[str] = msgspec.field(default_factory=list)
    node_types: list[str] = msgspec.field(default_factory=list)
    labels: list[str] = msgspec.field(default_factory=list)
    node: list[Predicate] | None = None
    edge: list[Predicate] | None = None


def expand_context(who: Principal, request: ExpandRequest, *, hold_denied: frozenset[str]) -> ReadContext:
    """Return the context of an expansion, at the times that it asks for."""
    return ReadContext.of(
        who,
        valid_at=None if request.time is None else as_utc(request.time, "time"),
        as_of=None if request.as_of is None else as_utc(request.as_of, "as_of"),
        hold_denied=hold_denied,
    )


async def expand(db: Database, context: ReadContext, *, request: ExpandRequest, cap: int) -> bytes:
    """Return the encoded ExpandRead; raise BadRequest when limit_nodes times depth reaches `cap`, or NotFound."""
    steps = read_steps(request)
    depth = _depth(request)
    if request.limit_nodes * depth >= cap:
        raise BadRequest(
            f"limit_nodes: times {'the number of phases' if request.phases else 'max_depth'} it has to stay below "
            f"{cap}; lower one of them.",
            code="expand_too_large",
            details={"asked": request.limit_nodes * depth, "cap": cap},
        )
    started = time.perf_counter()
    row = await run_walk(
        db,
        context,
        _parameters(context, request, steps, depth),
        statement=queries.EXPAND_OBJECTS,
        with_held=queries.EXPAND_WITH_HELD,
    )
    milliseconds = round((time.perf_counter() - started) * 1000, 1)
    _raise_problem(row)
    _observe(row, milliseconds)
    _log(context, request, steps, depth, row, milliseconds)
    return _encode(request, row, milliseconds)


def read_steps(request: ExpandRequest) -> list[Step]:
    """Return the hops of a request: its phases, or one that holds for all levels."""
    filters = request.filters or WalkFilters()
    default = Step(
        direction=_DIRECTIONS[request.direction or "both"],
        edge_types=request.edge_types or [],
        node_types=request.node_types or [],
        labels=request.labels or [],
        node=read_filter(filters.node, "node", "filters.node"),
        edge=read_filter(filters.edge, "edge", "filters.edge"),
    )
    if request.phases is None:
        return [default]
    return [_phase_step(phase, f"phases[{number}]", default) for number, phase in enumerate(request.phases)]


def _phase_step(phase: Phase, field: str, default: Step) -> Step:
    filters = phase.filters or WalkFilters()
    return Step(
        direction=default.direction if phase.direction is None else _DIRECTIONS[phase.direction],
        edge_types=default.edge_types if phase.edge_types is None else phase.edge_types,
        node_types=default.node_types if phase.node_types is None else phase.node_types,
        labels=default.labels if phase.labels is None else phase.labels,
        node=[*(default.node or []), *read_filter(filters.node, "node", f"{field}.filters.node")],
        edge=[*(default.edge or []), *read_filter(filters.edge, "edge", f"{field}.filters.edge")],
    )


def _depth(request: ExpandRequest) -> int:
    if request.phases is not None:
        return min(len(request.phases), request.max_depth or len(request.phases))
    return request.max_depth or DEFAULT_DEPTH


def _parameters(context: ReadContext, request: ExpandRequest, steps: list[Step], depth: int) -> dict[str, Any]:
    fields = request.include or Include()
    include = {"object": read_include(fields.object, "object"), "edge": read_include(fields.edge, "edge")}
    options = {
        "branch": context.branch,
        "phased": request.phases is not None,
        "depth": depth,
        "time": context.valid_at,
        "as_of": context.as_of,
        "edges_per_node": request.limit_edges_per_node or request.limit_edges,
        "max_nodes": request.limit_nodes,
        "max_edges": request.limit_edges,
        "dedupe": request.dedupe,
        "distinct": request.distinct_nodes,
        "paths": request.return_paths,
        "max_paths": MAX_PATHS,
    }
    return {
        "tenant": context.who.tenant_id,
        "project": require_project(context.who),
        "roots": sorted({str(root) for root in request.roots}),
        "steps": msgspec.json.encode(steps).decode(),
        "include": msgspec.json.encode(include).decode(),
        "options": msgspec.json.encode(options).decode(),
    }


def _raise_problem(row: Row) -> None:
    if row["problem"] == "object_not_found":
        raise roots_not_found("roots")
    if row["problem"] == "type_unknown":
        raise BadRequest(
            f"{row['detail']}: no such type is registered or in use here; check its spelling.",
            code="type_unknown",
            details={"type": row["detail"]},
        )


def roots_not_found(field: str) -> NotFound:
    """Return the error for roots none of which exist."""
    return NotFound(f"{field}: there is no such object here.", code="object_not_found")


def _encode(request: ExpandRequest, row: Row, milliseconds: float) -> bytes:
    meta = ExpandMeta(
        depth_reached=row["depth_reached"],
        truncated=row["overflow"] is not None,
        overflow_type=row["overflow"],
        nodes_returned=row["node_count"],
        edges_returned=row["edge_count"],
        execution_ms=milliseconds,
        missing_roots=row["missing"] or UNSET,
    )
    paths = f',"paths":[{row["paths"] or ""}]' if request.return_paths else ""
    head = f'{{"nodes":[{row["nodes"] or ""}],"edges":[{row["edges"] or ""}]{paths},"meta":'
    return b"%b%b}" % (head.encode(), msgspec.json.encode(meta))


def _observe(row: Row, milliseconds: float) -> None:
    observe_walk(
        "expand",
        seconds=milliseconds / 1000,
        truncated=row["overflow"],
        depth=row["depth_reached"],
        nodes=row["node_count"],
        edges=row["edge_count"],
    )


def _log(
    context: ReadContext, request: ExpandRequest, steps: list[Step], depth: int, row: Row, milliseconds: float
) -> None:
    fields = request.include or Include()
    log.info(
        "graph.expand",
        type="graph.expand",
        tenant=context.who.tenant_id,
        roots_count=len(set(request.roots)),
        requested={
            "max_depth": depth,
            "max_nodes": request.limit_nodes,
            "max_edges": request.limit_edges,
            "direction": "phases" if request.phases else request.direction or "both",
        },
        node_count=row["node_count"],
        edge_count=row["edge_count"],
        max_depth_reached=row["depth_reached"],
        truncated=row["overflow"] is not None,
        # How many of each: their names are text of the caller.
        filters={
            "relationship_types": _count(step.edge_types for step in steps),
            "object_types": _count(step.node_types for step in steps),
            "labels": _count(step.labels for step in steps),
            "projection_include": len(fields.object or []),
            "projection_exclude": 0,
            "include_relationship_properties": any(
                path.lstrip("/").startswith("properties") for path in fields.edge or []
            ),
        },
        elapsed_ms=milliseconds,
        ts=int(time.time() * 1000),
    )


def _count(lists: Iterable[list[str]]) -> int:
    return len({name for names in lists for name in names})
