"""What is around some objects: the whole answer at once, as the database writes it."""

import time
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
from app.objects.traversal.projections import read_include
from app.objects.traversal.schemas import ExpandAsk, ExpandMeta, Include, Phase, WalkFilters
from app.telemetry.metrics import observe_walk

log: structlog.stdlib.BoundLogger = structlog.get_logger()

DEFAULT_DEPTH = 2
MAX_PATHS = 10_000
_DIRECTIONS = {"outbound": "out", "inbound": "in", "both": "both"}


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one hop may cross and reach."""

    direction: str
    edge_types: list[str] = msgspec.field(default_factory=list)
    node_types: list[str] = msgspec.field(default_factory=list)
    labels: list[str] = msgspec.field(default_factory=list)
    node: list[Predicate] | None = None
    edge: list[Predicate] | None = None


async def expand(db: Database, who: Principal, *, ask: ExpandAsk, cap: int) -> bytes:
    """The answer, encoded; `cap` bounds limitNodes times depth."""
    steps = read_steps(ask)
    depth = _depth(ask)
    if ask.limit_nodes * depth >= cap:
        raise BadRequest(
            f"limitNodes: times {'the number of phases' if ask.phases else 'maxDepth'} it has to stay below {cap}; "
            "lower one of them.",
            code="expand_too_large",
            details={"asked": ask.limit_nodes * depth, "cap": cap},
        )
    wanted = ask.include or Include()
    include = {"object": read_include(wanted.object, "object"), "edge": read_include(wanted.edge, "edge")}
    started = time.perf_counter()
    (row,) = await db.query(who, queries.EXPAND_OBJECTS, _parameters(who, ask, steps, depth, include))
    milliseconds = round((time.perf_counter() - started) * 1000, 1)
    _refuse(row)
    _tell(who, ask, steps, depth, row, milliseconds)
    return _encode(ask, row, milliseconds)


def read_steps(ask: ExpandAsk) -> list[Step]:
    """The hops that are asked for: one for all levels, or the phases."""
    filters = ask.filters or WalkFilters()
    every = Step(
        direction=_DIRECTIONS[ask.direction or "both"],
        edge_types=ask.edge_types or [],
        node_types=ask.node_types or [],
        labels=ask.labels or [],
        node=read_filter(filters.node, "node", "filters.node"),
        edge=read_filter(filters.edge, "edge", "filters.edge"),
    )
    if ask.phases is None:
        return [every]
    return [_phase(phase, f"phases[{number}]", every) for number, phase in enumerate(ask.phases)]


def _phase(phase: Phase, where: str, every: Step) -> Step:
    filters = phase.filters or WalkFilters()
    return Step(
        direction=every.direction if phase.direction is None else _DIRECTIONS[phase.direction],
        edge_types=every.edge_types if phase.edge_types is None else phase.edge_types,
        node_types=every.node_types if phase.node_types is None else phase.node_types,
        labels=every.labels if phase.labels is None else phase.labels,
        node=[*(every.node or []), *read_filter(filters.node, "node", f"{where}.filters.node")],
        edge=[*(every.edge or []), *read_filter(filters.edge, "edge", f"{where}.filters.edge")],
    )


def _depth(ask: ExpandAsk) -> int:
    if ask.phases is not None:
        return min(len(ask.phases), ask.max_depth or len(ask.phases))
    return ask.max_depth or DEFAULT_DEPTH


def _parameters(
    who: Principal, ask: ExpandAsk, steps: list[Step], depth: int, include: dict[str, Any]
) -> dict[str, Any]:
    return {
        "tenant": who.tenant_id,
        "project": require_project(who),
        "roots": sorted({str(root) for root in ask.roots}),
        "steps": msgspec.json.encode(steps).decode(),
        "phased": ask.phases is not None,
        "depth": depth,
        "time": None if ask.time is None else as_utc(ask.time, "time"),
        "fan": ask.limit_edges_per_node or ask.limit_edges,
        "cap": ask.limit_nodes,
        "most": ask.limit_edges,
        "dedupe": ask.dedupe,
        "distinct": ask.distinct_nodes,
        "paths": ask.return_paths,
        "most_paths": MAX_PATHS,
        "include": msgspec.json.encode(include).decode(),
    }


def _refuse(row: Row) -> None:
    if row["problem"] == "object_not_found":
        raise roots_not_found("roots")
    if row["problem"] == "type_unknown":
        raise BadRequest(
            f"{row['detail']}: no such type is registered or in use here; check its spelling.",
            code="type_unknown",
            details={"type": row["detail"]},
        )


def roots_not_found(field: str) -> NotFound:
    """None of the objects to start from is there."""
    return NotFound(f"{field}: there is no such object here.", code="object_not_found")


def _encode(ask: ExpandAsk, row: Row, milliseconds: float) -> bytes:
    meta = ExpandMeta(
        depth_reached=row["depth_reached"],
        truncated=row["overflow"] is not None,
        overflow_type=row["overflow"],
        nodes_returned=row["node_count"],
        edges_returned=row["edge_count"],
        execution_ms=milliseconds,
        missing_roots=row["missing"] or UNSET,
    )
    paths = f',"paths":[{row["paths"] or ""}]' if ask.return_paths else ""
    head = f'{{"nodes":[{row["nodes"] or ""}],"edges":[{row["edges"] or ""}]{paths},"meta":'
    return b"%b%b}" % (head.encode(), msgspec.json.encode(meta))


def _tell(who: Principal, ask: ExpandAsk, steps: list[Step], depth: int, row: Row, milliseconds: float) -> None:
    observe_walk(
        "expand",
        seconds=milliseconds / 1000,
        truncated=row["overflow"],
        depth=row["depth_reached"],
        nodes=row["node_count"],
        edges=row["edge_count"],
    )
    wanted = ask.include or Include()
    edge_fields = wanted.edge or []
    log.info(
        "graph.expand",
        type="graph.expand",
        tenant=who.tenant_id,
        roots_count=len(set(ask.roots)),
        requested={
            "max_depth": depth,
            "max_nodes": ask.limit_nodes,
            "max_edges": ask.limit_edges,
            "direction": "phases" if ask.phases else ask.direction or "both",
        },
        node_count=row["node_count"],
        edge_count=row["edge_count"],
        max_depth_reached=row["depth_reached"],
        truncated=row["overflow"] is not None,
        filters={
            "relationship_types": _all(step.edge_types for step in steps),
            "object_types": _all(step.node_types for step in steps),
            "labels": _all(step.labels for step in steps),
            "projection_include": wanted.object or [],
            "projection_exclude": [],
            "include_relationship_properties": any(path.lstrip("/").startswith("properties") for path in edge_fields),
        },
        elapsed_ms=milliseconds,
        ts=int(time.time() * 1000),
    )


def _all(named: Any) -> list[str]:
    return sorted({name for names in named for name in names})
