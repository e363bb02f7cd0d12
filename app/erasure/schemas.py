"""Tombstones, receipts, provenance and the audit log on the wire."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.audit.recording import EventType
from app.facts.schemas import FactRead, TombstoneNotice
from app.tenancy.schemas import Create, Read

Reason = Annotated[str, Meta(min_length=1, max_length=500)]
Grace = Annotated[int, Meta(ge=0, le=366 * 86_400)]


class TombstoneCreate(Create, frozen=True, kw_only=True):
    """What is to be forgotten: an entity, everywhere or in some scopes."""

    entity: str | UnsetType = UNSET
    """Name, alias, URI or id. `entity_uri` means the same."""
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
    """How much a tombstone covers; an erasure destroys so much."""

    facts: int
    notes: int
    objects: int


class TombstoneCreated(Read, frozen=True, kw_only=True):
    tombstone: TombstoneRead
    job_id: UUID | None
    """The job that erases, if that was asked for; null for a key bound to a project, which follows `erased_at`."""
    hidden: HiddenCount


class TombstoneList(Read, frozen=True, kw_only=True):
    tombstones: list[TombstoneRead]
    next_cursor: str | None


class TombstoneRevoke(Create, frozen=True, kw_only=True):
    reason: Reason


class TombstoneRevoked(Read, frozen=True, kw_only=True):
    tombstone: TombstoneRead


class Receipt(Read, frozen=True, kw_only=True):
    """Proof that something was destroyed, and how much of it."""

    receipt: dict[str, Any]
    """What was destroyed, where, when, and what the check found."""
    signed: str
    """The receipt as the very text that was signed."""
    signature: str
    public_key: str
    algorithm: Literal["Ed25519"]


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


class EventRead(Read, frozen=True, kw_only=True):
    sequence: int
    """Its place in the tenant's chain."""
    event_id: UUID
    event_type: EventType
    project_id: str | None
    key_id: str
    agent_id: str
    details: dict[str, Any]
    created_at: datetime
    previous_hash: str
    hash: str
    """SHA-256 over the line and the hash before it."""


class EventList(Read, frozen=True, kw_only=True):
    events: list[EventRead]
    next_cursor: str | None
