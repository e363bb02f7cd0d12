"""Responses of the graph."""

from typing import Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from app.facts.schemas import EntityBrief, TombstoneNotice, TombstoneStatus
from app.tenancy.schemas import Read

Direction = Literal["out", "in", "both"]


class PathStep(Read, frozen=True, kw_only=True):
    """One fact on the way, from the nearer entity to the farther one."""

    origin: UUID = msgspec.field(name="from")
    relation: str
    to: UUID
    direction: Literal["out", "in"]
    """out: `from` is the fact's subject; in: it is the object."""
    fact_id: UUID


class NeighborRead(Read, frozen=True, kw_only=True):
    entity: EntityBrief
    relation: str
    """Of the last fact on the path; so are confidence and source_trust."""
    hops: int
    confidence: float
    source_trust: float
    path: list[PathStep]
    """A shortest one; among those the surest last fact decides."""
    tombstone_status: TombstoneStatus | UnsetType = UNSET
    """Only on what an administrator reads at a past time although a legal hold hides it."""


class NeighborList(Read, frozen=True, kw_only=True):
    entity: EntityBrief
    depth: int
    neighbors: list[NeighborRead]
    next_cursor: str | None
    total_hint: int
    """How many there are on all pages."""
    truncated: bool
    """Whether a bound left edges or entities out: the surest were kept."""
    tombstone_notices: list[TombstoneNotice] | UnsetType = UNSET
    """Only when facts under a legal hold are among them."""
