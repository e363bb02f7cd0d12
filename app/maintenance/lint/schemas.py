"""Wire types of lint."""

from typing import Annotated, Literal, get_args
from uuid import UUID

from msgspec import UNSET, Meta, UnsetType

from app.paging import MAX_CURSOR_LENGTH
from app.tenancy.schemas import Create, Read

Check = Literal["stale", "orphaned", "broken_references", "contradictions"]
CHECKS: tuple[Check, ...] = get_args(Check)
Kind = Literal[
    "fact", "note", "card", "entity", "vector", "mention", "object", "relationship", "conflict", "predicate"
]  # fmt: skip


class LintRequest(Create, frozen=True, kw_only=True):
    """Which checks to run, and which page of their findings to return."""

    checks: Annotated[list[Check], Meta(min_length=1, max_length=len(CHECKS))] | None = None
    """All, when absent."""
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    """How many findings a page has at most."""
    cursor: Annotated[str, Meta(max_length=MAX_CURSOR_LENGTH)] | None = None
    """`next_cursor` of the page before, with the same checks."""


class LintCount(Read, frozen=True, kw_only=True):
    """How many rows were found for one reason."""

    check: Check
    """The check that looks for it."""
    reason: str
    """Its stable name."""
    kind: Kind
    """What the ids of these findings are."""
    meaning: str
    """The reason in words."""
    count: int
    """At most 10,000."""
    truncated: bool
    """There are more than were counted, or the check took too long and was stopped."""


class LintFinding(Read, frozen=True, kw_only=True):
    """One row that needs attention."""

    check: Check
    """The check that found it."""
    reason: str
    """Why, as `counts` explains it."""
    kind: Kind
    """What the id is one of."""
    id: UUID
    """The row's id, by which it can be read."""
    related: list[UUID]
    """Further ids that the meaning of the reason speaks of."""


class LintReport(Read, frozen=True, kw_only=True):
    """What the checks found, as far as the caller can see."""

    counts: list[LintCount] | UnsetType = UNSET
    """One for each reason, on the first page only."""
    truncated: bool
    """Some counts are too low, or findings are left out because a check took too long."""
    findings: list[LintFinding]
    """In the order of the reasons, then of the ids."""
    next_cursor: str | None
