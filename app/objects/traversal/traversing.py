"""A bounded walk over objects, one page of it at a time."""

import time
from typing import Any

import msgspec
import structlog

from app.access import Principal, require_project
from app.db.database import Database, Row
from app.objects.traversal import queries
from app.objects.traversal.expanding import Step, roots_not_found
from app.objects.traversal.schemas import TraverseAsk
from app.paging import CursorSigner, Page
from app.telemetry.metrics import observe_walk

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class _Around(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer says beside its nodes and edges."""

    truncated: bool
    max_depth_reached: int
    total_nodes: int
    has_next_page: bool
    has_previous_page: bool
    next_cursor: str | None
    previous_cursor: str | None
    approx_position_start: int
    approx_position_end: int


async def traverse(db: Database, who: Principal, *, ask: TraverseAsk, cursors: CursorSigner) -> bytes:
    """One page of the answer, encoded."""
    page = open_page(cursors, who, ask)
    started = time.perf_counter()
    (row,) = await db.query(who, queries.TRAVERSE_OBJECTS, _parameters(who, ask, page))
    milliseconds = round((time.perf_counter() - started) * 1000, 1)
    if row["problem"] is not None:
        raise roots_not_found("root_ids")
    around = _around(row, page)
    _tell(who, ask, row, around, milliseconds)
    roots = msgspec.json.encode(row["roots"]).decode()
    head = f'{{"roots":{roots},"nodes":[{row["nodes"] or ""}],"edges":[{row["edges"] or ""}],'
    return head.encode() + msgspec.json.encode(around)[1:]


def open_page(cursors: CursorSigner, who: Principal, ask: TraverseAsk) -> Page:
    """The page that is asked for; a cursor fits only the walk it was made for."""
    asked = {
        name: getattr(ask, name)
        for name in ("direction", "max_depth", "max_nodes", "max_edges", "relationship_types", "object_types", "labels")
    }
    roots = sorted({str(root) for root in ask.root_ids})
    return Page(cursors, who, "traverse", limit=ask.limit, cursor=ask.cursor, roots=roots, **asked)


def _parameters(who: Principal, ask: TraverseAsk, page: Page) -> dict[str, Any]:
    step = Step(
        direction=ask.direction,
        edge_types=ask.relationship_types,
        node_types=ask.object_types,
        labels=ask.labels,
        node=[],
        edge=[],
    )
    after_depth, after = page.after or (None, None)
    return {
        "tenant": who.tenant_id,
        "project": require_project(who),
        "roots": sorted({str(root) for root in ask.root_ids}),
        "steps": msgspec.json.encode([step]).decode(),
        "depth": ask.max_depth,
        "cap": ask.max_nodes,
        "most": ask.max_edges,
        "after_depth": after_depth,
        "after": after,
        "back": ask.page_direction == "backward",
        "limit": page.limit,
    }


def _around(row: Row, page: Page) -> _Around:
    more, before = row["ends"] + 1 < row["total"], row["starts"] > 0
    shown = row["starts"] <= row["ends"]
    return _Around(
        truncated=row["truncated"],
        max_depth_reached=row["depth_reached"],
        total_nodes=row["total"],
        has_next_page=more,
        has_previous_page=before,
        next_cursor=page.sign([row["last_depth"], row["last_id"]]) if more and shown else None,
        previous_cursor=page.sign([row["first_depth"], row["first_id"]]) if before and shown else None,
        approx_position_start=row["starts"],
        approx_position_end=row["ends"],
    )


def _tell(who: Principal, ask: TraverseAsk, row: Row, around: _Around, milliseconds: float) -> None:
    observe_walk(
        "traverse",
        seconds=milliseconds / 1000,
        truncated="any" if around.truncated else None,
        depth=around.max_depth_reached,
        nodes=around.total_nodes,
        edges=row["edge_count"],
    )
    log.info(
        "graph.traverse.page",
        type="graph.traverse.page",
        tenant=who.tenant_id,
        roots_count=len(set(ask.root_ids)),
        direction=ask.direction,
        page_direction=ask.page_direction,
        requested_limit=ask.limit,
        effective_limit=ask.limit,
        total_nodes=around.total_nodes,
        page_item_count=around.approx_position_end - around.approx_position_start + 1,
        has_next_page=around.has_next_page,
        has_previous_page=around.has_previous_page,
        max_depth_requested=ask.max_depth,
        max_depth_reached=around.max_depth_reached,
        truncated=around.truncated,
        approx_position_start=around.approx_position_start,
        approx_position_end=around.approx_position_end,
        next_cursor_set=around.next_cursor is not None,
        prev_cursor_set=around.previous_cursor is not None,
        elapsed_ms=milliseconds,
        ts=int(time.time() * 1000),
    )
