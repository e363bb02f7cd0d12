"""Wire types of reviews and usage."""

from datetime import date, datetime
from typing import Literal
from uuid import UUID

from msgspec import UNSET, UnsetType

from app.notes.schemas import NoteType, Reason
from app.paging import Total
from app.tenancy.schemas import Create, Read, Visibility

ReviewStatus = Literal["pending", "approved", "rejected"]


class ReviewTarget(Read, frozen=True, kw_only=True):
    """The target note of a review, as it is now."""

    note_id: UUID
    content: str
    version: int


class ReviewRead(Read, frozen=True, kw_only=True):
    """A proposed change of a note that needs a decision."""

    review_id: UUID
    action: Literal["update", "delete"]
    status: ReviewStatus
    note_id: UUID
    """The note the proposal comes from."""
    target_note_id: UUID
    """The note it would change."""
    target_version: int
    """At which version; when it has changed since, the proposal can no longer be approved."""
    content: str
    """What was said; for an update what the note would say."""
    type: NoteType
    confidence: float
    reason: str
    extraction_model: str
    scope: Visibility
    garden_id: UUID | None
    agent_id: str
    decided_by: str | None
    decision_reason: str | None
    created_at: datetime
    decided_at: datetime | None
    target: ReviewTarget | UnsetType | None = UNSET
    """null when it is deleted."""


class ReviewList(Read, frozen=True, kw_only=True):
    reviews: list[ReviewRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET


class ReviewDecision(Create, frozen=True, kw_only=True):
    reason: Reason | None = None
    """Why; kept with the review, and on approval in the note's history."""


class ReviewDecided(Read, frozen=True, kw_only=True):
    review: ReviewRead


class UsageRead(Read, frozen=True, kw_only=True):
    """The usage of one model on one day."""

    day: date
    model: str
    calls: int
    failures: int
    input_tokens: int
    output_tokens: int


class UsageList(Read, frozen=True, kw_only=True):
    usage: list[UsageRead]
    spent: int
    """Tokens in the present period."""
    budget: int | None
    """Tokens the project may spend in a period; null: no limit."""
    period: Literal["day", "month", "total"]
