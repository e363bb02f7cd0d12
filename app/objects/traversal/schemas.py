"""Wire schemas of traversal."""

from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.paging import MAX_CURSOR_LENGTH
from app.tenancy.schemas import Create, Moment, Read

MAX_ROOTS = 50
TypeName = Annotated[str, Meta(min_length=1, max_length=200)]
Types = Annotated[list[TypeName], Meta(max_length=64)]
Labels = Annotated[list[Annotated[str, Meta(max_length=200)]], Meta(max_length=64)]
Roots = Annotated[list[UUID], Meta(min_length=1, max_length=MAX_ROOTS)]
IncludePaths = Annotated[list[Annotated[str, Meta(min_length=1, max_length=1000)]], Meta(max_length=64)]

Direction = Literal["outbound", "inbound", "both"]
Dedupe = Literal["node", "edge", "path"]
Overflow = Literal["node", "edge", "path"]


class WalkFilters(Create, frozen=True, kw_only=True):
    """Conditions on properties and fields: `{"status": {"in": ["active"]}}`, or a list of {path, operator, value}."""

    node: Any = None
    edge: Any = None


class Include(Create, frozen=True, kw_only=True):
    """Which fields to return; ids, ends and depth are always returned."""

    object: IncludePaths | None = None
    """Such as title, status, properties or properties.summary; absent: the usual ones."""
    edge: IncludePaths | None = None
    """Such as type, weight or properties.role; absent: type and weight."""


class Phase(Create, frozen=True, kw_only=True):
    """One hop; fields that it leaves out are those of the request."""

    edge_types: Types | None = None
    direction: Direction | None = None
    node_types: Types | None = None
    labels: Labels | None = None
    filters: WalkFilters | None = None


class ExpandRequest(Create, frozen=True, kw_only=True):
    """An expansion. Its fields may also be written in camelCase, such as maxDepth, which is the older form."""

    older_style: ClassVar[str] = "camel"

    roots: Roots
    """Ids of objects, or of any version of them; 1 to 50."""
    direction: Direction | None = None
    """outbound: from src to dst; inbound: against it; both, which is the default: either way."""
    max_depth: Annotated[int, Meta(ge=1, le=6)] | None = None
    """How many hops at the most; 2 when absent, with phases as many as there are."""
    edge_types: Types | None = None
    """Only over relationships of these types."""
    node_types: Types | None = None
    """Only objects of these types; roots are exempt."""
    labels: Labels | None = None
    """Only objects with at least one of these labels; roots are exempt."""
    filters: WalkFilters | None = None
    limit_nodes: Annotated[int, Meta(ge=1, le=10_000)] = 2000
    limit_edges: Annotated[int, Meta(ge=1, le=100_000)] = 50_000
    limit_edges_per_node: Annotated[int, Meta(ge=0, le=100_000)] = 100
    """How many relationships of one object are crossed, the heaviest first; 0: as many as limit_edges."""
    include: Include | None = None
    dedupe: Dedupe = "node"
    """Which paths are told: the first to each node, one over each edge, or all simple ones."""
    distinct_nodes: bool = False
    """Only the edge by which each node was first reached."""
    return_paths: bool = False
    time: Moment | None = None
    """Only what is in effect and valid at this time."""
    as_of: Moment | None = None
    """What was recorded at this time (needs scope history:as_of); not before the project's as_of_floor."""
    phases: Annotated[list[Phase], Meta(min_length=1, max_length=6)] | None = None
    """Hops of their own, one after the other."""


class ExpandedNode(Read, frozen=True, kw_only=True):
    """An object with the requested fields; id and depth are always there."""

    id: UUID
    version: int | UnsetType = UNSET
    type: str | UnsetType = UNSET
    subtype: str | UnsetType | None = UNSET
    key: str | UnsetType | None = UNSET
    title: str | UnsetType | None = UNSET
    status: str | UnsetType | None = UNSET
    labels: list[str] | UnsetType = UNSET
    effective_from: Moment | UnsetType | None = UNSET
    effective_to: Moment | UnsetType | None = UNSET
    created_at: Moment | UnsetType = UNSET
    updated_at: Moment | UnsetType = UNSET
    evidence: Any | UnsetType = UNSET
    properties: dict[str, Any] | UnsetType = UNSET
    depth: int


class ExpandedEdge(Read, frozen=True, kw_only=True):
    """A relationship with the requested fields; id, src and dst are always there."""

    id: UUID
    src: UUID
    dst: UUID
    type: str | UnsetType = UNSET
    weight: float | UnsetType | None = UNSET
    role_src: str | UnsetType | None = UNSET
    role_dst: str | UnsetType | None = UNSET
    valid_from: Moment | UnsetType | None = UNSET
    valid_to: Moment | UnsetType | None = UNSET
    created_at: Moment | UnsetType = UNSET
    evidence: Any | UnsetType = UNSET
    version: int | UnsetType = UNSET
    properties: dict[str, Any] | UnsetType = UNSET


class ExpandMeta(Read, frozen=True, kw_only=True, rename="camel"):
    depth_reached: int
    truncated: bool
    overflow_type: Overflow | None
    """Which bound left something out: node before edge before path."""
    nodes_returned: int
    edges_returned: int
    execution_ms: float
    missing_roots: list[UUID] | UnsetType = UNSET
    """Roots that mean nothing here; only when there are some."""


class ExpandRead(Read, frozen=True, kw_only=True):
    nodes: list[ExpandedNode]
    """By depth, then id."""
    edges: list[ExpandedEdge]
    """By id."""
    paths: list[list[UUID]] | UnsetType = UNSET
    """Ids of nodes, from a root on; the shorter first, then by ids. Only with return_paths."""
    meta: ExpandMeta


class TraverseRequest(Create, frozen=True, kw_only=True):
    root_ids: Roots
    """Ids of objects, or of any version of them; 1 to 50."""
    direction: Literal["out", "in", "both"] = "both"
    max_depth: Annotated[int, Meta(ge=0, le=8)] = 2
    """0: only the roots."""
    max_nodes: Annotated[int, Meta(ge=1, le=5000)] = 200
    max_edges: Annotated[int, Meta(ge=1, le=10_000)] = 400
    relationship_types: Annotated[list[TypeName], Meta(max_length=32)] = msgspec.field(default_factory=list)
    """Only over relationships of these types."""
    object_types: Types = msgspec.field(default_factory=list)
    """Only objects of these types, roots included."""
    labels: Labels = msgspec.field(default_factory=list)
    """Only objects with at least one of these labels, roots included."""
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    """Nodes a page."""
    as_of: Moment | None = None
    """What was recorded at this time (needs scope history:as_of); not before the project's as_of_floor."""
    cursor: Annotated[str, Meta(max_length=MAX_CURSOR_LENGTH)] | None = None
    """`next_cursor` or `previous_cursor` of another page of the same walk; good for 300 seconds."""
    page_direction: Literal["forward", "backward"] = "forward"
    """backward: the page before the cursor; without one the last page."""


class TraversedNode(Read, frozen=True, kw_only=True):
    id: UUID
    depth: int
    type: str
    key: str | None
    labels: list[str]


class TraversedEdge(Read, frozen=True, kw_only=True):
    id: UUID
    type: str
    src_id: UUID
    dst_id: UUID


class TraverseRead(Read, frozen=True, kw_only=True):
    roots: list[UUID]
    """The objects the walk began at."""
    nodes: list[TraversedNode]
    """By depth, then id."""
    edges: list[TraversedEdge]
    """Those whose later end is on this page, so that all pages together have each edge once."""
    truncated: bool
    """Whether max_nodes or max_edges left something out."""
    max_depth_reached: int
    total_nodes: int
    """On all pages."""
    has_next_page: bool
    has_previous_page: bool
    next_cursor: str | None
    previous_cursor: str | None
    approx_position_start: int
    """The place of the first node of this page among all, from 0."""
    approx_position_end: int
