"""Responses of the graph."""

from typing import Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from app.facts.schemas import EntityBrief, TombstoneNotice, TombstoneStatus
from app.paging import Total
from app.tenancy.schemas import Read

Direction = Literal["out", "in", "both"]


class PathStep(Read, frozen=True, kw_only=True):
    """One fact of a path, from the nearer entity to the farther one."""

    origin: UUID = msgspec.field(name="from")
    relation: str
    to: UUID
    direction: Literal["out", "in"]
    """out: `from` is the fact's subject; in: it is the object."""
    fact_id: UUID


class NeighborRead(Read, frozen=True, kw_only=True):
    entity: EntityBrief
    relation: str
    """Of the last fact of the path, like confidence and source_trust."""
    hops: int
    confidence: float
    source_trust: float
    path: list[PathStep]
    """A shortest path; among several, the one whose last fact has the highest confidence."""
    tombstone_status: TombstoneStatus | UnsetType = UNSET
    """Only for administrators who read at a past time what a legal hold hides."""


class NeighborList(Read, frozen=True, kw_only=True):
    entity: EntityBrief | None
    """null when it is unknown, or the caller cannot see it."""
    depth: int
    neighbors: list[NeighborRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET
    total_hint: int
    """How many neighbors there are on all pages."""
    truncated: bool
    """Whether a limit left out edges or entities; those of highest confidence are kept."""
    tombstone_notices: list[TombstoneNotice] | UnsetType = UNSET
    """Only when facts under a legal hold are among them."""
