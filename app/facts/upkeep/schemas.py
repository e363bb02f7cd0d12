"""Conflicts, decay policies and sources on the wire."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.facts.schemas import Confidence, FactRead
from app.facts.values import ValueType
from app.retrieval.trust import Authority, Identity, TrustMode
from app.tenancy.schemas import AgentId, Create, Moment, Read, Visibility, VisibilityIn

ConflictStatus = Literal["open", "resolved"]
DecayMode = Literal["retract", "confidence", "dry_run"]
Seconds = Annotated[float, Meta(ge=0.000001, le=3_155_760_000)]
RelationName = Annotated[str, Meta(min_length=1, max_length=200)]
SourceName = Annotated[str, Meta(min_length=1, max_length=500)]


class ConflictRead(Read, frozen=True, kw_only=True):
    conflict_id: UUID
    fact_a: UUID
    fact_b: UUID
    status: ConflictStatus
    preferred: UUID | None
    """While it is open: the one of higher confidence, or as high and written later."""
    winner: UUID | None
    detected_at: datetime
    resolved_at: datetime | None
    resolved_by: str | None
    resolution_note: str | None
    facts: list[FactRead]
    """Both, as they are now."""


class ConflictList(Read, frozen=True, kw_only=True):
    conflicts: list[ConflictRead]
    next_cursor: str | None


class ConflictResolve(Create, frozen=True, kw_only=True):
    """Which of the two holds, or what holds instead of both."""

    winner: UUID | None = None
    """One of the two facts."""
    value: Any = UNSET
    """A new value instead of both: text, a number, true, false or null."""
    type: ValueType | UnsetType = UNSET
    """Of the new value; when absent, what it evidently is."""
    valid_from: Moment | None = None
    """Of the new value; when absent, where the earlier of the two starts."""
    evidence: Annotated[list[UUID], Meta(max_length=100)] = msgspec.field(default_factory=list)
    """Notes that say so, for a new value."""
    note: Annotated[str, Meta(min_length=1, max_length=500)] | None = None
    """Why; kept with the conflict. `resolution_note` means the same."""
    resolution_note: Annotated[str, Meta(min_length=1, max_length=500)] | None = None


class ConflictResolved(Read, frozen=True, kw_only=True):
    conflict: ConflictRead
    fact: FactRead
    """The one that holds, now for certain."""
    retracted: list[UUID]


class DecayPolicyCreate(Create, frozen=True, kw_only=True):
    """What time does to facts: retract after `ttl_s`, or halve their confidence every `half_life_s`."""

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


class SourcePut(Create, frozen=True, kw_only=True):
    """What is known of a source; facts name it in `source`."""

    source: SourceName
    identity: Identity = "syntactic"
    """How it proves who it is."""
    authority: Authority = "other"
    """By what right it speaks."""
    agents: Annotated[list[AgentId], Meta(max_length=100)] = msgspec.field(default_factory=list)
    """Who may speak for it; others who name it are judged as unknown. Empty: everybody may."""
    blocklisted: bool = False


class SourceRead(Read, frozen=True, kw_only=True):
    source_id: UUID
    source: str
    identity: Identity
    authority: Authority
    agents: list[str]
    blocklisted: bool
    trust: float
    """t() of it now."""
    trust_mode: TrustMode
    created_at: datetime
    updated_at: datetime


class SourceWritten(Read, frozen=True, kw_only=True):
    source: SourceRead
    created: bool
    job_id: UUID
    """The job that gives facts already written the new trust."""


class SourceList(Read, frozen=True, kw_only=True):
    sources: list[SourceRead]
    next_cursor: str | None
