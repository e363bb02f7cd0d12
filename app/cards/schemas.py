"""Responses of memory cards."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from msgspec import UNSET, UnsetType

from app.facts.schemas import EntityBrief
from app.paging import Total
from app.tenancy.schemas import Read, Visibility


class CardValue(Read, frozen=True, kw_only=True):
    type: Literal["text"] = "text"
    v: str
    """Markdown."""


class CardRead(Read, frozen=True, kw_only=True):
    """A summary of an entity in one scope and garden, in the form of a fact; it does not decay."""

    card_id: UUID | None
    """null only on a card at another time that has no stored card today."""
    entity: EntityBrief
    relation: Literal["memory:card"] = "memory:card"
    value: CardValue
    source: Literal["system:palimpsest:card-generator"] = "system:palimpsest:card-generator"
    scope: Visibility
    garden_id: UUID | None
    confidence: float = 1.0
    """Always 1; the table in the card has the confidence of each fact."""
    card_stale: bool
    """Whether its facts changed since it was built, or it is too old; it is then rebuilt."""
    facts: int
    """How many facts it shows."""
    omitted: int
    """How many facts were omitted for lack of space."""
    built_at: datetime
    """The time its facts were read at."""


class ShownCard(Read, frozen=True, kw_only=True):
    """The card of a recall response as a trace stores it, without its text."""

    card_id: UUID
    entity_id: UUID
    scope: Visibility
    garden_id: UUID | None
    built_at: datetime
    card_stale: bool
    judged: bool
    """Whether the trust in sources counted."""


class ReplayedCard(Read, frozen=True, kw_only=True):
    """A card of a trace, built again from the facts on record then; `exists` is false when these were erased or are not
    readable, or the entity was merged into another."""

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
    total: Total | UnsetType = UNSET
    force_refresh_timeout: bool | UnsetType = UNSET
    """Only when `force_refresh` took too long and the cards were not rebuilt."""
