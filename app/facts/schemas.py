"""Entities, predicates and facts on the wire."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.batches import ItemError
from app.facts.values import ValueType
from app.paging import Total
from app.tenancy.schemas import Create, Moment, Read, UserId, Visibility, VisibilityIn

Kind = Annotated[str, Meta(min_length=1, max_length=64, description="person, company, city, ...")]
Reason = Annotated[str, Meta(min_length=1, max_length=500)]
Confidence = Annotated[float, Meta(ge=0, le=1)]
Hash = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)", description="A fact_hash: 64 hexadecimal digits.")]
Cardinality = Literal["single", "multi"]
Status = Literal["pending", "active", "deprecated"]


class EntityRef(Create, frozen=True, kw_only=True):
    """A reference to an entity: a name, which is found or created, or an id."""

    canonical: str | None = None
    kind: Kind | None = None
    entity_id: UUID | None = None


class EntityCreate(Create, frozen=True, kw_only=True):
    """An entity: a name or a URI, and what kind of thing it is."""

    canonical: str
    kind: Kind | None = None
    aliases: Annotated[list[str], Meta(max_length=100)] = msgspec.field(default_factory=list)
    """Other names for it."""
    user_id: UserId | None = None
    """The end user whose entity it is; absent: X-User-Id, or common to all users."""


class AliasCreate(Create, frozen=True, kw_only=True):
    alias: str


class EntityMerge(Create, frozen=True, kw_only=True):
    """The entity to merge with that of the path; the id of the merged one keeps resolving."""

    into: UUID | None = None
    """The one that stays; that of the path goes into it."""
    source: UUID | None = msgspec.field(name="from", default=None)
    """The one that goes into that of the path."""


class TombstoneNotice(Read, frozen=True, kw_only=True):
    """A legal hold on an entity that an administrator read at a past time."""

    entity_uri: str
    tombstone_id: UUID
    legal_hold: bool
    tombstone_created_at: datetime


TombstoneStatus = Literal["legal_hold"]


class EntityBrief(Read, frozen=True, kw_only=True):
    entity_id: UUID
    canonical: str
    kind: str | None


class EntityCounts(Read, frozen=True, kw_only=True):
    """How much is known about an entity, as far as the caller may read it; 10,000 means that many or more."""

    facts: int
    """Current facts about it or pointing to it."""
    mentions: int
    """Live notes that mention it."""


class EntityRead(Read, frozen=True, kw_only=True):
    entity_id: UUID
    canonical: str
    kind: str | None
    aliases: list[str]
    user_id: str | None
    """The end user whose entity it is; null is common to all users."""
    object_canonical_id: UUID | None
    """The object that stands for it, if one does that the caller can see."""
    created_at: datetime
    updated_at: datetime
    counts: EntityCounts | UnsetType = UNSET
    """Only where one entity is read as it is now."""
    tombstone_status: TombstoneStatus | UnsetType = UNSET
    """Only on what an administrator reads at a past time although a legal hold hides it."""
    tombstone_notices: list[TombstoneNotice] | UnsetType = UNSET


class EntityWritten(Read, frozen=True, kw_only=True):
    entity: EntityRead
    created: bool


class EntityList(Read, frozen=True, kw_only=True):
    entities: list[EntityRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET
    tombstone_notices: list[TombstoneNotice] | UnsetType = UNSET


class AliasRead(Read, frozen=True, kw_only=True):
    alias_id: UUID
    entity_id: UUID
    alias: str
    created_at: datetime


class AliasCreated(Read, frozen=True, kw_only=True):
    alias: AliasRead
    created: bool


class EntityMerged(Read, frozen=True, kw_only=True):
    """Two entities that are one now; the counts are of facts that the caller can see."""

    entity: EntityRead
    merged: UUID
    facts_moved: int
    facts_folded: int


class MergeAccepted(Read, frozen=True, kw_only=True):
    """A merge that a job does, since the two entities have many facts."""

    entity: EntityRead
    """The one that stays, as it is before the merge."""
    merging: UUID
    """Id of the entity that goes into the other; it keeps resolving."""
    job_id: UUID


class PredicateCreate(Create, frozen=True, kw_only=True):
    """A predicate to register before a fact first uses it."""

    name: str
    cardinality: Cardinality = "multi"
    status: Status | UnsetType = UNSET
    """When absent: active for administrators and keys with the scope `predicates:admin`, pending for others."""
    scope: Literal["project", "tenant"] = "project"
    """`tenant`: for all its projects; for administrators."""


class PredicatePatch(Create, frozen=True, kw_only=True):
    cardinality: Cardinality | UnsetType = UNSET
    status: Status | UnsetType = UNSET
    resolve: Literal["latest"] | None = None
    """When it becomes single-valued while several values are open: each ends where the next one starts."""


class PredicateBrief(Read, frozen=True, kw_only=True):
    predicate_id: UUID
    name: str
    status: Status
    cardinality: Cardinality


class PredicateRead(Read, frozen=True, kw_only=True):
    predicate_id: UUID
    name: str
    status: Status
    cardinality: Cardinality
    scope: Literal["project", "tenant", "global"]
    aliases: list[str]
    created_at: datetime
    updated_at: datetime


class PredicateWritten(Read, frozen=True, kw_only=True):
    predicate: PredicateRead
    created: bool


class PredicateList(Read, frozen=True, kw_only=True):
    predicates: list[PredicateRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET


class PredicateAliasRead(Read, frozen=True, kw_only=True):
    alias_id: UUID
    predicate_id: UUID
    alias: str
    created_at: datetime


class PredicateAliasCreated(Read, frozen=True, kw_only=True):
    alias: PredicateAliasRead
    created: bool


class ObjectIn(Create, frozen=True, kw_only=True):
    """Either an entity, or a value with its type."""

    entity: str | EntityRef | UnsetType = UNSET
    value: Any = UNSET
    """Text, a number, true, false or null."""
    type: ValueType | UnsetType = UNSET
    """When absent: what the value evidently is. `ref`: the value names an entity, like `entity`."""
    v: Any = UNSET
    """The same as value, as recall shows it."""


class FactCreate(Create, frozen=True, kw_only=True):
    """A fact: a subject, a predicate, and an entity or a value as its object."""

    subject: str | EntityRef | UnsetType = UNSET
    """A name (or URI, alias, id); found or made. `entity` and `entity_uri` mean the same."""
    predicate: str | UnsetType = UNSET
    """A name or id; a new one is registered as pending and multi. `relation` means the same."""
    object: ObjectIn | str
    """An object; words alone are refused, since they could mean an entity or a value."""
    scope: VisibilityIn = "project_shared"
    garden_id: UUID | None = None
    user_id: UserId | None = None
    """The end user whose memory it is; absent: X-User-Id, or common to all users."""
    source: Annotated[str, Meta(min_length=1, max_length=500)] | None = None
    confidence: Confidence = 1.0
    """0 denies the fact: the same one, if it is believed, is retracted; otherwise 400 `confidence_zero`."""
    valid_from: Moment | None = None
    """Now, when absent."""
    valid_to: Moment | UnsetType | None = UNSET
    """Open, when absent. `valid_until` means the same."""
    evidence: Annotated[list[UUID], Meta(max_length=100)] = msgspec.field(default_factory=list)
    """The notes that say so."""
    derived_from: Annotated[list[Hash], Meta(max_length=100)] = msgspec.field(default_factory=list)
    """The hashes of facts this one was concluded from."""
    entity: str | EntityRef | UnsetType = UNSET
    entity_uri: str | UnsetType = UNSET
    relation: str | UnsetType = UNSET
    valid_until: Moment | UnsetType | None = UNSET


class FactPatch(Create, frozen=True, kw_only=True):
    valid_to: Moment | UnsetType | None = UNSET
    """When it ended or will end; null: open again. Required."""
    derived_from: Any = UNSET
    """Fixed when a fact is made: sending it is refused."""


class FactRetract(Create, frozen=True, kw_only=True):
    reason: Reason | None = None


class FactsRetract(Create, frozen=True, kw_only=True):
    """Retracts all facts of a subject and a predicate in one scope."""

    subject: str | EntityRef
    predicate: str
    scope: VisibilityIn = "project_shared"
    user_id: UserId | None = None
    """The end user whose facts are meant; absent: X-User-Id, or common ones."""
    reason: Reason | None = None


class ObjectRead(Read, frozen=True, kw_only=True):
    """An entity, or a value with its type."""

    entity: EntityBrief | UnsetType = UNSET
    value: Any = UNSET
    type: ValueType | UnsetType = UNSET


class FactRead(Read, frozen=True, kw_only=True):
    fact_id: UUID
    subject: EntityBrief
    predicate: PredicateBrief
    object: ObjectRead
    scope: Visibility
    garden_id: UUID | None
    agent_id: str
    user_id: str | None
    """The end user whose fact it is; null is common to all users."""
    source: str | None
    source_trust: float
    confidence: float
    valid_from: datetime
    valid_to: datetime | None
    created_at: datetime
    closed_at: datetime | None
    retracted_at: datetime | None
    contradicted: bool
    evidence: list[UUID]
    derived_from: list[str]
    fact_hash: str
    mentions: int
    project_id: str | UnsetType = UNSET
    """Only on a fact of another project that shares it."""
    tombstone_status: TombstoneStatus | UnsetType = UNSET
    """Only on what an administrator reads at a past time although a legal hold hides it."""
    tombstone_notices: list[TombstoneNotice] | UnsetType = UNSET
    """On a fact that is read alone; a list has them beside its facts."""


WriteOutcome = Literal["created", "reused", "retracted"]
EndOutcome = Literal["ended", "reopened", "unchanged"]


class FactWritten(Read, frozen=True, kw_only=True):
    fact: FactRead
    outcome: WriteOutcome | EndOutcome
    """What became of it; a PATCH answers ended, reopened or unchanged."""
    superseded: list[UUID]
    conflicts: list[UUID]


class FactBatch(Create, frozen=True, kw_only=True):
    facts: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    """Up to 1,000, each as the body of POST /v1/facts."""
    user_id: UserId | None = None
    """The end user whose facts these are, the same for all; absent: X-User-Id, or common to all users."""
    atomic: bool = True
    """Any error, and nothing is written; false: each on its own, with a result for each."""


class FactResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    index: int
    outcome: WriteOutcome | None = None
    fact: FactRead | None = None
    superseded: list[UUID] | None = None
    conflicts: list[UUID] | None = None
    error: ItemError | None = None


class FactBatchDone(Read, frozen=True, kw_only=True):
    results: list[FactResult]


class FactList(Read, frozen=True, kw_only=True):
    facts: list[FactRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET
    tombstone_notices: list[TombstoneNotice] | UnsetType = UNSET
    """Only when facts under a legal hold are among them."""


class FactRetracted(Read, frozen=True, kw_only=True):
    fact: FactRead


class FactsRetracted(Read, frozen=True, kw_only=True):
    retracted: list[UUID]


class SupersessionRead(Read, frozen=True, kw_only=True):
    from_fact_id: UUID
    to_fact_id: UUID
    note_id: UUID | None
    effective_at: datetime
    created_at: datetime


class EvidenceRead(Read, frozen=True, kw_only=True):
    note_id: UUID
    created_at: datetime


class ClosingRead(Read, frozen=True, kw_only=True):
    recorded_at: datetime
    previous_valid_to: datetime | None


class RetractionRead(Read, frozen=True, kw_only=True):
    kind: Literal["retracted", "corrected", "merged", "decayed", "resolved", "note_deleted"]
    reason: str | None
    retracted_by: str
    confidence_before: float
    retracted_at: datetime
    restored_at: datetime | None
    """When a deleted note that supports it was recovered, and the fact with it."""


class FactHistory(Read, frozen=True, kw_only=True):
    fact: FactRead
    chain: list[FactRead]
    """The facts it superseded and those that superseded it, and so on, in order of valid_from; itself included."""
    supersessions: list[SupersessionRead]
    evidence: list[EvidenceRead]
    closings: list[ClosingRead]
    """Every change of its end, with the end before it."""
    retractions: list[RetractionRead]
    truncated: bool


class ProvenanceNode(msgspec.Struct, frozen=True, kw_only=True):
    hash: str
    exists: bool
    """false: it is not there, or not for the caller; both look alike."""
    depth: int | UnsetType = UNSET
    fact: FactRead | UnsetType = UNSET


class ProvenanceEdge(Read, frozen=True, kw_only=True):
    derived_fact_id: UUID
    source_hash: str
    kind: Literal["derived", "resolves"]


class Provenance(Read, frozen=True, kw_only=True):
    root_fact_id: UUID
    depth_limit: int
    nodes: list[ProvenanceNode]
    edges: list[ProvenanceEdge]
    truncated: bool
    """There is more, further back or beside what is shown."""
    tombstone_notices: list[TombstoneNotice] | UnsetType = UNSET
    """Only when facts under a legal hold are among them."""
