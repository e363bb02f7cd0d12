"""Requests, responses and traces of recall."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.cards.schemas import CardRead, ReplayedCard
from app.facts.names import MAX_NAME, MAX_PREDICATE
from app.facts.schemas import FactRead, TombstoneNotice
from app.notes.schemas import NoteType
from app.tenancy.schemas import Create, Moment, Read, UserId, Visibility, VisibilityIn

Kind = Literal["facts", "notes"]
Channel = Literal["lexical", "vector", "graph"]
Fusion = Literal["weighted_sum", "rrf"]
Share = Annotated[float, Meta(ge=0, le=1)]
MAX_QUERY = 10_000
MAX_BUDGET = 200_000
MAX_DEPTH = 2
DEFAULT_RESULTS = 50
# Bounds in the reference only: request.py checks them, since their errors have codes of their own.
BUDGET_BOUNDS: dict[str, Any] = {"minimum": 1, "maximum": MAX_BUDGET}
DEPTH_BOUNDS: dict[str, Any] = {"minimum": 0, "maximum": MAX_DEPTH}
ENTITY_BOUNDS: dict[str, Any] = {"maxLength": MAX_NAME}
RELATION_BOUNDS: dict[str, Any] = {"maxLength": MAX_PREDICATE}
MaxResults = Annotated[int, Meta(ge=1, le=200, extra_json_schema={"extra": {"default": DEFAULT_RESULTS}})]
EntityName = Annotated[str, Meta(extra_json_schema={"extra": ENTITY_BOUNDS})]
RelationName = Annotated[str, Meta(min_length=1, extra_json_schema={"extra": RELATION_BOUNDS})]


class Weights(Create, frozen=True, kw_only=True):
    """The weight of each channel, from 0 to 1; the sum must be 1 within a thousandth."""

    lexical: float = 0.0
    vector: float = 0.0
    graph: float = 0.0


DEFAULT_WEIGHTS = Weights(lexical=0.3, vector=0.5, graph=0.2)


class RecallAsk(Create, frozen=True, kw_only=True):
    """A recall request."""

    query: Annotated[str, Meta(max_length=MAX_QUERY)] | UnsetType = UNSET
    """What to look for, in the user's own words. `intent` is a synonym."""
    intent: Annotated[str, Meta(max_length=MAX_QUERY)] | UnsetType = UNSET
    token_budget: Annotated[int, Meta(extra_json_schema={"extra": BUDGET_BOUNDS})] = 2000
    """How many tokens the results may use; a result uses 40 plus a quarter of its bytes."""
    max_results: MaxResults | UnsetType = UNSET
    """At most this many results. `max_facts` is a synonym."""
    max_facts: MaxResults | UnsetType = UNSET
    include: Annotated[list[Kind], Meta(min_length=1)] = msgspec.field(default_factory=lambda: ["facts", "notes"])
    depth: Annotated[int, Meta(extra_json_schema={"extra": DEPTH_BOUNDS})] = 1
    """How many edges to follow from what was found: 0 to 2."""
    weights: Weights = DEFAULT_WEIGHTS
    fusion: Fusion = "weighted_sum"
    lambda_mmr: Share = 0.7
    """MMR: 1 ranks by score alone, less avoids repetition."""
    min_confidence: Share = 0.1
    include_low_trust: bool = False
    """Include facts whose confidence times source_trust is below 0.2, which are left out unless trust_mode is off."""
    include_contradicted: bool = False
    """Include facts that a preferred fact contradicts."""
    entity: EntityName | UnsetType = UNSET
    """Only facts and notes about this entity, and its memory card. `entity_uri` is a synonym."""
    entity_uri: EntityName | UnsetType = UNSET
    relation: RelationName | UnsetType = UNSET
    """Only facts with this predicate. `predicate` is a synonym."""
    predicate: RelationName | UnsetType = UNSET
    scope: VisibilityIn | None = None
    """Only this visibility scope."""
    as_of: Annotated[str, Meta(extra_json_schema={"extra": {"format": "date-time"}})] | None = None
    """What was recorded at this time (scope history:as_of)."""
    user_id: UserId | None = None
    """The end user who is spoken with: what is theirs and what is common; absent: X-User-Id, or everything."""
    valid_at: Moment | None = None
    """What was valid at this time; default now, or as_of."""
    force_refresh: bool = False
    """Rebuild the entity's card first, within half a second."""
    recency: bool = False
    """Lower the scores of notes by their age, as for facts."""
    graph_boost: bool = False
    """Raise notes about the entities that the query names, in projects with graph_enabled."""
    rendered: bool = False
    """Return the results also as one text for a prompt; its frame counts towards the budget."""
    debug: bool = False
    """Return the parts of each score too (scope graph:search:debug)."""


class ValueRead(Read, frozen=True, kw_only=True):
    type: str
    v: Any


class RecalledFact(FactRead, frozen=True, kw_only=True, tag_field="kind", tag="fact"):
    """A recalled fact, with its score."""

    id: UUID
    entity: str
    relation: str
    value: ValueRead
    score: float
    hops: int
    card_stale: bool = False
    provenance_of: UUID | UnsetType = UNSET
    """The fact of the response that was derived from this one."""


class RecalledNote(Read, frozen=True, kw_only=True, tag_field="kind", tag="note"):
    """A recalled note, with its score."""

    id: UUID
    note_id: UUID
    content: str
    type: NoteType
    tags: list[str]
    scope: Visibility
    garden_id: UUID | None
    agent_id: str
    author: str | None
    occurred_at: datetime
    thread_id: str | None
    position: int | None
    created_at: datetime
    project_id: str | UnsetType = UNSET
    """Only on a note of another project that shares it."""
    score: float


class ScoreRead(Read, frozen=True, kw_only=True):
    """The parts of a score."""

    id: UUID
    kind: Literal["fact", "note"]
    lexical: float
    vector: float
    graph: float
    lexical_raw: float
    cosine: float | None
    graph_raw: float
    raw_score: float
    salience: float
    source_trust_multiplier: float
    score: float


class EmbeddingRead(Read, frozen=True, kw_only=True):
    """The model that embedded the query."""

    model: str
    version: int
    dimensions: int


class BoostRead(Read, frozen=True, kw_only=True):
    """The effect of the graph boost."""

    notes: int
    """How many notes are about the entities that the query names."""
    timed_out: bool
    """Whether the time limit ended the search for them."""


class RecallMeta(Read, frozen=True, kw_only=True):
    """How the response was made."""

    channels: list[Channel]
    """The channels used; one that is unavailable is missing."""
    degraded: bool
    """Whether a requested channel was unavailable."""
    fusion: str
    normalization_version: str
    candidates: int
    embedding: EmbeddingRead | None
    graph_boost: BoostRead | UnsetType = UNSET
    reranked: bool | UnsetType = UNSET
    """Whether the project's reranker ordered the first results; false when it failed or was late."""


class TooLong(Read, frozen=True, kw_only=True):
    """One of the best results, which exceeds the whole token budget."""

    kind: Literal["fact", "note"]
    id: UUID
    score: float
    tokens: int


class RecallRead(Read, frozen=True, kw_only=True):
    query: str
    token_budget: int
    tokens_used: int
    results: list[RecalledFact | RecalledNote]
    memory_card: CardRead | None
    card_stale: bool | UnsetType = UNSET
    force_refresh_timeout: bool | UnsetType = UNSET
    truncated: bool
    too_long: list[TooLong] | UnsetType = UNSET
    """Only if there are any: repeat with a larger `token_budget`, or read them by id."""
    scores_debug: list[ScoreRead] | None
    rendered: str | UnsetType = UNSET
    trace_id: UUID
    meta: RecallMeta
    tombstone_notices: list[TombstoneNotice] | UnsetType = UNSET


class SeenFact(Read, frozen=True, kw_only=True):
    """The fields of a fact that can change, as they were when it was returned."""

    valid_to: datetime | None
    closed_at: datetime | None
    retracted_at: datetime | None
    confidence: float
    source_trust: float
    mentions: int
    contradicted: bool


class TraceResult(Read, frozen=True, kw_only=True):
    kind: Literal["fact", "note"]
    id: UUID
    score: float
    hops: int | UnsetType = UNSET
    provenance_of: UUID | UnsetType = UNSET
    """The fact of the response that was derived from this one."""
    seen: SeenFact | UnsetType = UNSET
    """Only for a fact that the caller may still read; the same applies to `provenance_of`."""


class TraceRead(Read, frozen=True, kw_only=True):
    """A recall request, who made it and when, and its results."""

    trace_id: UUID
    agent_id: str
    key_id: str
    request: dict[str, Any]
    context: dict[str, Any]
    results: list[TraceResult]
    valid_at: datetime
    as_of: datetime
    created_at: datetime


class ReplayedResult(Read, frozen=True, kw_only=True):
    """A result as it was then; `exists` is false when it was erased since or may not be read."""

    kind: Literal["fact", "note"]
    id: UUID
    score: float
    hops: int | UnsetType = UNSET
    provenance_of: UUID | UnsetType = UNSET
    exists: bool
    fact: FactRead | UnsetType = UNSET
    note: RecalledNote | UnsetType = UNSET


class ReplayRead(Read, frozen=True, kw_only=True):
    trace: TraceRead
    results: list[ReplayedResult]
    memory_card: ReplayedCard | None
    """The memory card of the response."""
    tombstone_notices: list[TombstoneNotice] | UnsetType = UNSET
