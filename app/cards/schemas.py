"""Responses of memory cards."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from msgspec import UNSET, UnsetType

from app.facts.schemas import EntityBrief
from app.tenancy.schemas import Read, Visibility


class CardValue(Read, frozen=True, kw_only=True):
    type: Literal["text"] = "text"
    v: str
    """Markdown."""


class CardRead(Read, frozen=True, kw_only=True):
    """What is known of an entity in one scope and garden; in the form of a fact, but no fact: it does not decay."""

    card_id: UUID | None
    """null only on a card of another time whose place has none today."""
    entity: EntityBrief
    relation: Literal["memory:card"] = "memory:card"
    value: CardValue
    source: Literal["system:palimpsest:card-generator"] = "system:palimpsest:card-generator"
    scope: Visibility
    garden_id: UUID | None
    confidence: float = 1.0
    """That there is such a card; how sure its facts are, each says for itself."""
    card_stale: bool
    """Whether its facts changed since, or it is too old; then it is being made anew."""
    facts: int
    """How many it shows."""
    omitted: int
    """How many there was no room for."""
    built_at: datetime
    """When what it tells was so."""


class ShownCard(Read, frozen=True, kw_only=True):
    """Which card stood beside the results of a recall: of whom, and of when, but nothing that it told."""

    card_id: UUID
    entity_id: UUID
    scope: Visibility
    garden_id: UUID | None
    built_at: datetime
    card_stale: bool
    judged: bool
    """Whether the trust in sources counted."""


class ReplayedCard(Read, frozen=True, kw_only=True):
    """A card that was shown, made again from the facts of then; `exists` is false for one whose facts were forgotten
    since or may not be read, and after its entity was merged into another."""

    card_id: UUID
    scope: Visibility
    garden_id: UUID | None
    card_stale: bool
    built_at: datetime
    exists: bool
    entity: EntityBrief | UnsetType = UNSET
    value: CardValue | UnsetType = UNSET
    facts: int | UnsetType = UNSET
    omitted: int | UnsetType = UNSET


class CardList(Read, frozen=True, kw_only=True):
    cards: list[CardRead]
    next_cursor: str | None
    force_refresh_timeout: bool | UnsetType = UNSET
    """Only when `force_refresh` took too long: then the cards are as they were."""
