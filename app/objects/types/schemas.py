"""Wire schemas of types."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.paging import Total
from app.tenancy.schemas import Create, Read

# No control characters and no blank ends; otherwise as people name things, such as Custom:RiskItem or attended_by.
TypeName = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^(?! )[^\x00-\x1f\x7f]+(?<! )$")]
# One that is registered is also a part of a path.
RegisteredName = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^(?! )[^\x00-\x1f\x7f/]+(?<! )$")]
Pointer = Annotated[str, Meta(max_length=512, pattern=r"^(/([^~/]|~[01])*)*$")]
JsonSchema = dict[str, Any] | bool
Policy = Literal["required", "optional", "disabled"]
Many = Literal["one", "many"]
Status = Literal["active", "retired"]
Weight = Annotated[float, Meta(ge=0, le=1000)]


class ObjectTypeCreate(Create, frozen=True, kw_only=True):
    """A type of objects, or the next version of one."""

    type: RegisteredName
    json_schema: JsonSchema = msgspec.field(default_factory=dict[str, Any])
    """A JSON Schema (draft 2020-12 unless it says otherwise) for `properties`. What it refers to stands within it."""
    description: Annotated[str, Meta(max_length=1000)] | None = None
    version: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    """The next one when absent; one that is there already has to say the same."""
    status: Status = "active"
    """`retired`: it is kept, and does not count yet."""
    force: bool = False
    """Registers it although existing objects do not fit it; otherwise 409 `objects_do_not_fit` says how many."""
    embedding_policy: Policy = "optional"
    """`disabled`: objects of this type are found by their words alone. A job applies a change of this and the next two
    fields to existing objects."""
    embedding_relevant_paths: Annotated[list[Pointer], Meta(max_length=64)] | None = None
    """JSON Pointers to what is embedded; all properties when absent."""
    fts_enabled: bool = True
    """Whether objects of this type are found by their words."""


class Multiplicity(Create, frozen=True, kw_only=True):
    """How many live relationships of a type an object may have, as source and as destination."""

    src: Many = "many"
    dst: Many = "many"


class RankingRule(Create, frozen=True, kw_only=True):
    """How relationships of a type are ranked when neighbors are chosen."""

    base_weight: Weight | None = None
    allow_neighbor: bool = True
    max_depth_allowed: Annotated[int, Meta(ge=1, le=8)] | None = None
    reciprocal_boost: Weight | None = None


class RelationshipTypeCreate(Create, frozen=True, kw_only=True):
    """A type of relationships, or the next version of one."""

    type: RegisteredName
    json_schema: JsonSchema = msgspec.field(default_factory=dict[str, Any])
    description: Annotated[str, Meta(max_length=1000)] | None = None
    version: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    status: Status = "active"
    allowed_src_types: Annotated[list[TypeName], Meta(max_length=200)] = msgspec.field(default_factory=list[str])
    """Types of objects it may start from; none named: any."""
    allowed_dst_types: Annotated[list[TypeName], Meta(max_length=200)] = msgspec.field(default_factory=list[str])
    multiplicity: Multiplicity = msgspec.field(default_factory=Multiplicity)
    """`one` for src: an object is the source of at most one; for dst: the destination of at most one."""
    ranking: RankingRule = msgspec.field(default_factory=RankingRule)


class TypePatch(Create, frozen=True, kw_only=True):
    """A version of a type to activate or to retire."""

    version: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    status: Status
    force: bool = False
    """Activates it although existing objects do not fit it."""


class ObjectTypeRead(Read, frozen=True, kw_only=True):
    type: str
    version: int
    status: Status
    scope: Literal["tenant", "global"]
    """A tenant's own type overrides the installation's of the same name."""
    description: str | None
    json_schema: JsonSchema
    embedding_policy: Policy
    embedding_relevant_paths: list[str] | None
    fts_enabled: bool
    created_by: str
    created_at: datetime


class RelationshipTypeRead(Read, frozen=True, kw_only=True):
    type: str
    version: int
    status: Status
    scope: Literal["tenant", "global"]
    description: str | None
    json_schema: JsonSchema
    allowed_src_types: list[str]
    allowed_dst_types: list[str]
    multiplicity: Multiplicity
    ranking: RankingRule
    created_by: str
    created_at: datetime


class ObjectTypeWritten(Read, frozen=True, kw_only=True):
    schema: ObjectTypeRead
    created: bool
    job_id: UUID | None = None
    """The job that applies changed settings of search to existing objects; null: none is needed, or the key cannot
    see it."""


class RelationshipTypeWritten(Read, frozen=True, kw_only=True):
    schema: RelationshipTypeRead
    created: bool


class ObjectTypeList(Read, frozen=True, kw_only=True):
    schemas: list[ObjectTypeRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET


class RelationshipTypeList(Read, frozen=True, kw_only=True):
    schemas: list[RelationshipTypeRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET
