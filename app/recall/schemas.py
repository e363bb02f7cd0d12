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
from app.tenancy.schemas import Create, Moment, Read, Visibility, VisibilityIn

Kind = Literal["facts", "notes"]
Channel = Literal["lexical", "vector", "graph"]
Fusion = Literal["weighted_sum", "rrf"]
Share = Annotated[float, Meta(ge=0, le=1)]
MAX_QUERY = 10_000
MAX_BUDGET = 200_000
MAX_DEPTH = 2
# Bounds in the reference only: request.py checks them, since their errors have codes of their own.
BUDGET_BOUNDS: dict[str, Any] = {"minimum": 1, "maximum": MAX_BUDGET}
DEPTH_BOUNDS: dict[str, Any] = {"minimum": 0, "maximum": MAX_DEPTH}
ENTITY_BOUNDS: dict[str, Any] = {"maxLength": MAX_NAME}
RELATION_BOUNDS: dict[str, Any] = {"maxLength": MAX_PREDICATE}
EntityName = Annotated[str, Meta(extra_json_schema={"extra": ENTITY_BOUNDS})]
RelationName = Annotated[str, Meta(min_length=1, extra_json_schema={"extra": RELATION_BOUNDS})]


class Weights(Create, frozen=True, kw_only=True):
    """How much each channel counts, from 0 to 1; together 1, give or take a thousandth."""

    lexical: float = 0.0
    vector: float = 0.0
    graph: float = 0.0


DEFAULT_WEIGHTS = Weights(lexical=0.3, vector=0.5, graph=0.2)


class RecallAsk(Create, frozen=True, kw_only=True):
    """What to bring back."""

    query: Annotated[str, Meta(max_length=MAX_QUERY)] | UnsetType = UNSET
    """In the user's own words. `intent` means the same."""
    intent: Annotated[str, Meta(max_length=MAX_QUERY)] | UnsetType = UNSET
    token_budget: Annotated[int, Meta(extra_json_schema={"extra": BUDGET_BOUNDS})] = 2000
    """How many tokens the results may take; a result takes 40 and a quarter of its bytes."""
    max_results: Annotated[int, Meta(ge=1, le=200)] = 50
    include: Annotated[list[Kind], Meta(min_length=1)] = msgspec.field(default_factory=lambda: ["facts", "notes"])
    depth: Annotated[int, Meta(extra_json_schema={"extra": DEPTH_BOUNDS})] = 1
    """How many edges away from what was found to look for facts: 0 to 2."""
    weights: Weights = DEFAULT_WEIGHTS
    fusion: Fusion = "weighted_sum"
    lambda_mmr: Share = 0.7
    """1: by score alone. Less: the less alike the better."""
    min_confidence: Share = 0.1
    include_low_trust: bool = False
    """Also facts whose confidence times source_trust is under .2."""
    include_contradicted: bool = False
    """Also those of contradicting facts that are not preferred."""
    entity: EntityName | UnsetType = UNSET
    """All about one entity: its facts by score, and its card. `entity_uri` means the same."""
    entity_uri: EntityName | UnsetType = UNSET
    relation: RelationName | UnsetType = UNSET
    """Only facts by this predicate. `predicate` means the same."""
    predicate: RelationName | UnsetType = UNSET
    scope: VisibilityIn | None = None
    """Only what has this visibility."""
    as_of: Annotated[str, Meta(extra_json_schema={"extra": {"format": "date-time"}})] | None = None
    """As it was known at this time (scope history:as_of)."""
    valid_at: Moment | None = None
    """What was valid at this time; now, or as_of, when absent."""
    force_refresh: bool = False
    """Have the entity's card made anew first, within half a second."""
    recency: bool = False
    """Let notes fade with age as facts do."""
    graph_boost: bool = False
    """Lift notes about the entities that the query names, where the project has its graph_enabled."""
    rendered: bool = False
    """Also as one text, ready for a prompt."""
    debug: bool = False
    """Also how each score came about (scope graph:search:debug)."""


class ValueRead(Read, frozen=True, kw_only=True):
    type: str
    v: Any


class RecalledFact(FactRead, frozen=True, kw_only=True, tag_field="kind", tag="fact"):
    """A fact that was recalled: as it is read alone, and with its score."""

    id: UUID
    entity: str
    relation: str
    value: ValueRead
    score: float
    hops: int
    card_stale: bool = False
    provenance_of: UUID | UnsetType = UNSET
    """That fact of the answer was concluded from it."""


class RecalledNote(Read, frozen=True, kw_only=True, tag_field="kind", tag="note"):
    """A note that was recalled."""

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
    score: float


class ScoreRead(Read, frozen=True, kw_only=True):
    """How a score came about."""

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
    """The model a query was embedded with."""

    model: str
    version: int
    dimensions: int


class BoostRead(Read, frozen=True, kw_only=True):
    """What the boost by the graph did."""

    notes: int
    """How many notes are about the entities that the query names."""
    timed_out: bool
    """Whether its time was over before it had found all."""


class RecallMeta(Read, frozen=True, kw_only=True):
    """What the answer was made of."""

    channels: list[Channel]
    """Those that took part; one that is out of order is missing here."""
    degraded: bool
    """Whether a channel that was asked for is out of order."""
    fusion: str
    normalization_version: str
    candidates: int
    embedding: EmbeddingRead | None
    graph_boost: BoostRead | UnsetType = UNSET
    reranked: bool | UnsetType = UNSET
    """Whether the project's reranker has ordered the head; false: it failed or was late, and the order is as it was."""


class TooLong(Read, frozen=True, kw_only=True):
    """One of the best that takes more tokens than the whole budget."""

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
    """Only where there are such: ask with a larger `token_budget`, or read them by their ids."""
    scores_debug: list[ScoreRead] | None
    rendered: str | UnsetType = UNSET
    trace_id: UUID
    meta: RecallMeta
    tombstone_notices: list[TombstoneNotice] | UnsetType = UNSET


class SeenFact(Read, frozen=True, kw_only=True):
    """What changes about a fact, as it was when it was shown."""

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
    """That fact of the answer was concluded from it."""
    seen: SeenFact | UnsetType = UNSET
    """Only of a fact that the caller may read to this day; so is `provenance_of`."""


class TraceRead(Read, frozen=True, kw_only=True):
    """What was asked, as whom and when, and what was returned."""

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
    """What stood at that place then; `exists` is false for what was forgotten since or may not be read."""

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
    """The card that stood beside them."""
    tombstone_notices: list[TombstoneNotice] | UnsetType = UNSET
