"""Tombstones and receipts on the wire."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import UNSET, Meta, UnsetType

from app.paging import Total
from app.tenancy.schemas import Create, Read

Reason = Annotated[str, Meta(min_length=1, max_length=500)]
Grace = Annotated[int, Meta(ge=0, le=366 * 86_400)]


class TombstoneCreate(Create, frozen=True, kw_only=True):
    """An entity to hide or erase, everywhere or in some scopes."""

    entity: str | UnsetType = UNSET
    """Name, alias, URI or id; a name that is no entity yet becomes one. `entity_uri` means the same."""
    entity_uri: str | UnsetType = UNSET
    scope: Any = "*"
    """All of them (`*`), or one or a list of agent_private, project_shared, org_shared, public."""
    reason: Reason
    """Why; for a legal hold its legal basis. Erasure blanks it."""
    legal_hold: bool = False
    """Hides, but keeps: administrators still read it with as_of, and nothing of it can be erased."""
    erase: bool = False
    """Also destroys what it hides, by a job, with a signed receipt."""
    grace_seconds: Grace = 0
    """How long until it is destroyed; until then the tombstone can be revoked."""
    notes: Literal["named", "linked"] = "named"
    """What speaks of it: `linked`, its facts and the notes that are their evidence; `named`, also notes that name it in
    their words and facts of others that name it in their value."""


class RevocationRead(Read, frozen=True, kw_only=True):
    reason: str
    revoked_by: str
    revoked_at: datetime


class TombstoneRead(Read, frozen=True, kw_only=True):
    tombstone_id: UUID
    entity: str | None
    """Its name; null once it is erased."""
    entity_id: UUID
    scope: str | list[str]
    reason: str
    created_by: str
    created_at: datetime
    legal_hold: bool
    erase: bool
    erase_at: datetime | None
    erased_at: datetime | None
    revocation: RevocationRead | None


class HiddenCount(Read, frozen=True, kw_only=True):
    """How many rows a tombstone hides; an erasure destroys them."""

    facts: int
    notes: int
    objects: int


class TombstoneCreated(Read, frozen=True, kw_only=True):
    tombstone: TombstoneRead
    job_id: UUID | None
    """The job that erases, if that was asked for; null for a key bound to a project, which follows `erased_at`."""
    hidden: HiddenCount
    possible_notes: list[UUID]
    """Up to 100 notes that stay visible, but possibly name it: they have the first and the last word of a name."""


class TombstoneList(Read, frozen=True, kw_only=True):
    tombstones: list[TombstoneRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET


class TombstoneRevoke(Create, frozen=True, kw_only=True):
    reason: Reason


class TombstoneRevoked(Read, frozen=True, kw_only=True):
    tombstone: TombstoneRead


class Receipt(Read, frozen=True, kw_only=True):
    """The signed proof of what an erasure destroyed."""

    receipt: dict[str, Any]
    """What was destroyed, where, when, and what the check found."""
    signed: str
    """The receipt as the very text that was signed."""
    signature: str
    public_key: str
    algorithm: Literal["Ed25519"]
