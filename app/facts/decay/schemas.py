"""Decay policies and sweeps on the wire."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.facts.schemas import Confidence
from app.paging import Total
from app.tenancy.schemas import Create, Read, Visibility, VisibilityIn

DecayMode = Literal["retract", "confidence", "dry_run"]
Seconds = Annotated[float, Meta(ge=0.000001, le=3_155_760_000)]
RelationName = Annotated[str, Meta(min_length=1, max_length=200)]


class DecayPolicyCreate(Create, frozen=True, kw_only=True):
    """A policy for ageing facts: retract them after `ttl_s`, or halve their confidence every `half_life_s`."""

    relation: RelationName = "*"
    """A predicate's name, or * for all."""
    scope: VisibilityIn | Literal["*"] = "*"
    mode: DecayMode
    """dry_run: sweeps only tell what `ttl_s` (or else `half_life_s`) would do."""
    ttl_s: Seconds | None = None
    half_life_s: Seconds | None = None
    min_confidence: Confidence = 0.0
    """Confidence falls no further."""
    exempt_relations: Annotated[list[RelationName], Meta(max_length=100)] = msgspec.field(default_factory=list)
    """Predicates this policy leaves alone."""


class DecayPolicyRead(Read, frozen=True, kw_only=True):
    policy_id: UUID
    relation: str
    scope: Visibility | Literal["*"]
    mode: DecayMode
    ttl_s: float | None
    half_life_s: float | None
    min_confidence: float
    exempt_relations: list[str]
    created_by: str
    created_at: datetime
    swept_at: datetime | None


class DecayPolicyCreated(Read, frozen=True, kw_only=True):
    policy: DecayPolicyRead
    created: bool


class DecayPolicyList(Read, frozen=True, kw_only=True):
    policies: list[DecayPolicyRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET


class DecaySweep(Create, frozen=True, kw_only=True):
    dry_run: bool = False
    """Tells what would happen and changes nothing."""


class DecayCount(Read, frozen=True, kw_only=True):
    policy_id: UUID
    action: Literal["retract", "confidence", "dry_run"]
    facts: int


class DecayedFact(Read, frozen=True, kw_only=True):
    fact_id: UUID
    policy_id: UUID
    action: Literal["retract", "confidence", "dry_run"]
    confidence_before: float
    confidence_after: float


class DecaySwept(Read, frozen=True, kw_only=True):
    dry_run: bool
    swept_at: datetime
    affected: int
    """How many facts, those the caller cannot see among them."""
    by_policy: list[DecayCount]
    facts: list[DecayedFact]
    """The first 200 of those the caller can see."""
