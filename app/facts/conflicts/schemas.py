"""Conflicts on the wire."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.facts.schemas import FactRead, TombstoneNotice
from app.facts.values import ValueType
from app.paging import Total
from app.tenancy.schemas import Create, Moment, Read

ConflictStatus = Literal["open", "resolved"]


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
    """Both, as they are now, or with `as_of` as they were then."""
    tombstone_notices: list[TombstoneNotice] | UnsetType = UNSET
    """Only when facts under a legal hold are among them."""


class ConflictList(Read, frozen=True, kw_only=True):
    conflicts: list[ConflictRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET
    tombstone_notices: list[TombstoneNotice] | UnsetType = UNSET
    """Only when facts under a legal hold are among them."""


class ConflictResolve(Create, frozen=True, kw_only=True):
    """The resolution of a conflict: one of the two facts, or a new value instead of both."""

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
