"""Use case of traverse: a bounded walk over objects, one page at a time."""

import time
from typing import Any

import msgspec
import structlog

from app.access import Principal, require_project
from app.db.database import Database, Row
from app.inputs import as_utc
from app.objects.traversal import queries
from app.objects.traversal.expand import Step, roots_not_found
from app.objects.traversal.holds import run_walk
from app.objects.traversal.schemas import TraverseRequest
from app.paging import CursorSigner, Page
from app.read_context import ReadContext
from app.telemetry.metrics import observe_walk

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class _PageInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a response beside its nodes and edges."""

    truncated: bool
    max_depth_reached: int
    total_nodes: int
    has_next_page: bool
    has_previous_page: bool
    next_cursor: str | None
    previous_cursor: str | None
    approx_position_start: int
    approx_position_end: int


async def traverse(db: Database, context: ReadContext, *, request: TraverseRequest, cursors: CursorSigner) -> bytes:
    """Return one page as an encoded TraverseRead; raise NotFound when no root exists."""
    page = open_page(cursors, context, request)
    started = time.perf_counter()
    row = await run_walk(
        db,
        context,
        _parameters(context, request, page),
        statement=queries.TRAVERSE_OBJECTS,
        with_held=queries.TRAVERSE_WITH_HELD,
    )
    milliseconds = round((time.perf_counter() - started) * 1000, 1)
    if row["problem"] is not None:
        raise roots_not_found("root_ids")
    info = _page_info(row, page)
    _observe(row, info, milliseconds)
    _log(context, request, info, milliseconds)
    roots = msgspec.json.encode(row["roots"]).decode()
    head = f'{{"roots":{roots},"nodes":[{row["nodes"] or ""}],"edges":[{row["edges"] or ""}],'
    return head.encode() + msgspec.json.encode(info)[1:]


def traverse_context(who: Principal, request: TraverseRequest, *, hold_denied: frozenset[str]) -> ReadContext:
    """Return the context of a walk, at the time that it asks for."""
    as_of = None if request.as_of is None else as_utc(request.as_of, "as_of")
    return ReadContext.of(who, as_of=as_of, hold_denied=hold_denied)


def open_page(cursors: CursorSigner, context: ReadContext, request: TraverseRequest) -> Page:
    """Return the requested page; raise CursorInvalid when the cursor belongs to another walk."""
    binding = {
        name: getattr(request, name)
        for name in ("direction", "max_depth", "max_nodes", "max_edges", "relationship_types", "object_types", "labels")
    }
    binding |= {"roots": sorted({str(root) for root in request.root_ids}), "as_of": context.as_of}
    return Page(cursors, context.who, "traverse", limit=request.limit, cursor=request.cursor, **binding)


def _parameters(context: ReadContext, request: TraverseRequest, page: Page) -> dict[str, Any]:
    step = Step(
        direction=request.direction,
        edge_types=request.relationship_types,
        node_types=request.object_types,
        labels=request.labels,
        node=[],
        edge=[],
    )
    after_depth, after_id = page.after or (None, None)
    options = {
        "branch": context.branch,
        "depth": request.max_depth,
        "as_of": context.as_of,
        "max_nodes": request.max_nodes,
        "max_edges": request.max_edges,
        "after_depth": after_depth,
        "after_id": after_id,
        "backward": request.page_direction == "backward",
        "limit": page.limit,
    }
    return {
        "tenant": context.who.tenant_id,
        "project": require_project(context.who),
        "roots": sorted({str(root) for root in request.root_ids}),
        "steps": msgspec.json.encode([step]).decode(),
        "options": msgspec.json.encode(options).decode(),
    }


def _page_info(row: Row, page: Page) -> _PageInfo:
    more, before = row["ends"] + 1 < row["total"], row["starts"] > 0
    shown = row["starts"] <= row["ends"]
    return _PageInfo(
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


def _observe(row: Row, info: _PageInfo, milliseconds: float) -> None:
    observe_walk(
        "traverse",
        seconds=milliseconds / 1000,
        truncated="any" if info.truncated else None,
        depth=info.max_depth_reached,
        nodes=info.total_nodes,
        edges=row["edge_count"],
    )


def _log(context: ReadContext, request: TraverseRequest, info: _PageInfo, milliseconds: float) -> None:
    log.info(
        "graph.traverse.page",
        type="graph.traverse.page",
        tenant=context.who.tenant_id,
        roots_count=len(set(request.root_ids)),
        direction=request.direction,
        page_direction=request.page_direction,
        requested_limit=request.limit,
        effective_limit=request.limit,
        total_nodes=info.total_nodes,
        page_item_count=info.approx_position_end - info.approx_position_start + 1,
        has_next_page=info.has_next_page,
        has_previous_page=info.has_previous_page,
        max_depth_requested=request.max_depth,
        max_depth_reached=info.max_depth_reached,
        truncated=info.truncated,
        approx_position_start=info.approx_position_start,
        approx_position_end=info.approx_position_end,
        next_cursor_set=info.next_cursor is not None,
        prev_cursor_set=info.previous_cursor is not None,
        elapsed_ms=milliseconds,
        ts=int(time.time() * 1000),
    )
