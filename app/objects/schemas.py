"""Wire schemas of objects and relationships."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.objects.types.schemas import TypeName
from app.paging import Total
from app.tenancy.schemas import Create, Moment, Read

Label = Annotated[str, Meta(min_length=1, max_length=128)]
Labels = Annotated[list[Label], Meta(max_length=64)]
Key = Annotated[str, Meta(min_length=1, max_length=256)]
Title = Annotated[str, Meta(min_length=1, max_length=1000)]
Word = Annotated[str, Meta(min_length=1, max_length=128)]
Properties = dict[str, Any]
Evidence = list[Any] | dict[str, Any]
Weight = Annotated[float, Meta(ge=-1e9, le=1e9)]
SchemaVersion = Annotated[int, Meta(ge=1, le=2**31 - 1)]
# Names an object of the same batch.
Ref = Annotated[str, Meta(min_length=1, max_length=128)]


class ObjectCreate(Create, frozen=True, kw_only=True):
    """A new object."""

    type: TypeName
    properties: Properties = msgspec.field(default_factory=dict[str, Any])
    """Checked by the type's JSON Schema where it has one. At most 256 KiB, 32 levels deep."""
    key: Key | None = None
    """Unique among the live objects of its type."""
    title: Title | None = None
    """Taken from the properties `title` or `name`, or the key, when absent."""
    subtype: Word | None = None
    status: Word | None = None
    labels: Labels = msgspec.field(default_factory=list[str])
    effective_from: Moment | None = None
    effective_to: Moment | None = None
    """It stands from the one until before the other; open, when absent."""
    evidence: Evidence | None = None
    """What it rests on, such as ids of notes."""
    schema_version: SchemaVersion | None = None
    """Checks it by this version of its type instead of the one that counts."""
    branch_id: UUID | None = None
    """The project's `main` when absent."""
    project_id: str | UnsetType | None = UNSET
    """null makes it an object of every project of the tenant; for administrators."""


class ObjectPatch(Create, frozen=True, kw_only=True):
    """A JSON merge patch: null removes, objects are merged, everything else replaces.

    A JSON Patch (a list of operations) can also set null.
    """

    properties: Properties | UnsetType = UNSET
    key: Key | UnsetType | None = UNSET
    title: Title | UnsetType | None = UNSET
    subtype: Word | UnsetType | None = UNSET
    status: Word | UnsetType | None = UNSET
    labels: Labels | UnsetType | None = UNSET
    effective_from: Moment | UnsetType | None = UNSET
    effective_to: Moment | UnsetType | None = UNSET
    evidence: Evidence | UnsetType | None = UNSET
    schema_version: SchemaVersion | UnsetType = UNSET


class ChangeSummary(Read, frozen=True, kw_only=True):
    """The changes since the previous version, by JSON Pointer into the properties."""

    added: Any
    removed: Any
    updated: Any
    """from and to, or their hashes where they are long; `{count, elided}` where the summary would be over 16 KB."""
    paths: list[str]
    meta: dict[str, Any]
    fields: Any | UnsetType = UNSET
    """What else changed: status, key, labels and the like."""


class ObjectRead(Read, frozen=True, kw_only=True):
    id: UUID
    """Of this version."""
    canonical_id: UUID
    """Of the object; it never changes, and every path takes it."""
    version: int
    supersedes_id: UUID | UnsetType | None = UNSET
    is_head: bool
    branch_id: UUID
    project_id: str | None
    type: str
    subtype: str | None
    key: str | None
    title: str | None
    status: str | None
    labels: list[str]
    properties: dict[str, Any]
    effective_from: datetime | None
    effective_to: datetime | None
    evidence: Any
    content_hash: str
    schema_version: int | None
    created_at: datetime
    updated_at: datetime | UnsetType = UNSET
    deleted_at: datetime | None
    written_by: str
    """The agent that wrote this version."""
    change_summary: ChangeSummary | UnsetType | None = UNSET


class ObjectWritten(Read, frozen=True, kw_only=True):
    object: ObjectRead
    created: bool
    warnings: list[str] | UnsetType = UNSET


class ObjectList(Read, frozen=True, kw_only=True):
    objects: list[ObjectRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET


class ObjectVersions(Read, frozen=True, kw_only=True):
    versions: list[ObjectRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET


class RelationshipFields(Create, frozen=True, kw_only=True):
    """The fields of a relationship beside its ends."""

    type: TypeName
    properties: Properties | UnsetType = UNSET
    weight: Weight | None = None
    role_src: Word | None = None
    role_dst: Word | None = None
    valid_from: Moment | None = None
    valid_to: Moment | None = None
    """It holds from the one until before the other; open, when absent."""
    evidence: Evidence | None = None
    schema_version: SchemaVersion | None = None
    branch_id: UUID | None = None
    project_id: str | UnsetType | None = UNSET
    """null: of every project of the tenant, as both of its ends must be; for administrators."""


class RelationshipCreate(RelationshipFields, frozen=True, kw_only=True):
    """A directed link from one object (src) to another (dst), such as src `wrote` dst."""

    src_id: UUID
    dst_id: UUID


class RelationshipRequest(RelationshipFields, frozen=True, kw_only=True):
    """A directed link from one object (src) to another (dst), such as src `wrote` dst. Name each end once."""

    src_id: UUID | None = None
    """The object it starts from: its canonical id, or that of one of its versions."""
    dst_id: UUID | None = None
    src: UUID | None = None
    """Another word for src_id."""
    dst: UUID | None = None
    src_object_id: UUID | None = None
    """Another word for src_id."""
    dst_object_id: UUID | None = None


class RelationshipPatch(Create, frozen=True, kw_only=True):
    """A JSON merge patch; the ends of a relationship cannot change."""

    properties: Properties | UnsetType = UNSET
    weight: Weight | UnsetType | None = UNSET
    role_src: Word | UnsetType | None = UNSET
    role_dst: Word | UnsetType | None = UNSET
    valid_from: Moment | UnsetType | None = UNSET
    valid_to: Moment | UnsetType | None = UNSET
    evidence: Evidence | UnsetType | None = UNSET
    schema_version: SchemaVersion | UnsetType = UNSET


class RelationshipRead(Read, frozen=True, kw_only=True):
    id: UUID
    canonical_id: UUID
    version: int
    supersedes_id: UUID | UnsetType | None = UNSET
    is_head: bool
    branch_id: UUID
    project_id: str | None
    type: str
    src_id: UUID
    dst_id: UUID
    weight: float | None
    role_src: str | None
    role_dst: str | None
    properties: dict[str, Any]
    valid_from: datetime | None
    valid_to: datetime | None
    evidence: Any
    content_hash: str
    schema_version: int | None
    created_at: datetime
    updated_at: datetime | UnsetType = UNSET
    deleted_at: datetime | None
    written_by: str
    """The agent that wrote this version."""
    change_summary: ChangeSummary | UnsetType | None = UNSET


class RelationshipWritten(Read, frozen=True, kw_only=True):
    relationship: RelationshipRead
    created: bool
    warnings: list[str] | UnsetType = UNSET


class RelationshipList(Read, frozen=True, kw_only=True):
    relationships: list[RelationshipRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET


class RelationshipVersions(Read, frozen=True, kw_only=True):
    versions: list[RelationshipRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET


class BatchObject(ObjectCreate, frozen=True, kw_only=True):
    """An object of a batch, with a ref for the relationships of the batch."""

    ref: Ref | None = None
    """What relationships of this batch call it."""


class BatchRelationship(RelationshipFields, frozen=True, kw_only=True):
    """A relationship of a batch: each end by id, or by the ref of an object of this batch."""

    src_id: UUID | None = None
    src_ref: Ref | None = None
    dst_id: UUID | None = None
    dst_ref: Ref | None = None


class GraphBatch(Create, frozen=True, kw_only=True):
    """Up to 1,000 objects and relationships, stored together or not at all."""

    objects: list[dict[str, Any]] = msgspec.field(default_factory=list[dict[str, Any]])
    relationships: list[dict[str, Any]] = msgspec.field(default_factory=list[dict[str, Any]])
    atomic: Literal[True] = True


class ObjectResult(Read, frozen=True, kw_only=True):
    index: int
    outcome: Literal["created"]
    ref: str | None
    object: ObjectRead


class RelationshipResult(Read, frozen=True, kw_only=True):
    index: int
    outcome: Literal["created", "updated", "unchanged"]
    relationship: RelationshipRead


class GraphBatchResult(Read, frozen=True, kw_only=True):
    objects: list[ObjectResult]
    relationships: list[RelationshipResult]
