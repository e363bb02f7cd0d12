"""Tenants, projects, keys and gardens on the wire."""

import re
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.access import MAX_USER_LENGTH
from app.paging import Total

Slug = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$(?!\n)", description="a-z, 0-9, _ and -, at most 63.")]
GardenSlug = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$(?!\n)", description="a-z, 0-9 and -, at most 63.")]
AGENT_FORM = r"^[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}$(?!\n)"
AgentId = Annotated[str, Meta(pattern=AGENT_FORM, description="Letters, digits and _ . : @ -, at most 128.")]
UserId = Annotated[
    str,
    Meta(
        min_length=1, max_length=MAX_USER_LENGTH, description="Your product's id of an end user; no control characters."
    ),
]
Name = Annotated[str, Meta(max_length=200)]
Moment = Annotated[datetime, Meta(tz=True)]
KeyKind = Literal["agent", "admin"]
Role = Literal["admin", "writer", "reader"]
Visibility = Literal["agent_private", "project_shared", "org_shared", "public"]
# Names that other systems use for the same scopes.
VisibilityIn = Literal[
    "agent_private", "local", "project_shared", "team", "team_shared", "org_shared", "company", "public"
]
SYNONYMS: dict[str, Visibility] = {
    "local": "agent_private",
    "team": "project_shared",
    "team_shared": "project_shared",
    "company": "org_shared",
}


def is_agent_id(text: str) -> bool:
    """Return whether a path segment can be the id of an agent."""
    return re.match(AGENT_FORM, text) is not None


class Create(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A body that makes or changes something; an unknown field is an error."""


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """Something as a caller sees it."""


class TenantCreate(Create, frozen=True, kw_only=True):
    tenant_id: Slug
    name: Name = ""


class TenantRead(Read, frozen=True, kw_only=True):
    tenant_id: str
    name: str
    created_at: datetime


class TenantCreated(Read, frozen=True, kw_only=True):
    tenant: TenantRead
    created: bool


class TenantList(Read, frozen=True, kw_only=True):
    tenants: list[TenantRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET


class ProjectCreate(Create, frozen=True, kw_only=True):
    project_id: Slug
    name: Name = ""
    tenant_id: Slug | None = None
    """Only for the platform key, which belongs to no tenant."""


Language = Literal[
    "simple", "arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "finnish", "french", "german",
    "greek", "hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian", "nepali", "norwegian", "portuguese",
    "romanian", "russian", "serbian", "spanish", "swedish", "tamil", "turkish", "yiddish",
]  # fmt: skip
TraceDays = Annotated[int, Meta(ge=1, le=3650)]


class ProjectSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a project decides for itself; absent: the default."""

    as_of_floor: Moment | None = None
    """Nobody looks back further than this; absent: as far as there is history."""
    trust_mode: Literal["off", "warn", "enforce"] = "off"
    """How much the trust in sources counts; off: it hides and ranks nothing."""
    language: Language = "english"
    """How words are brought to their stems for recall; simple: as they are."""
    trace_days: TraceDays = 30
    """How long traces of recall are kept."""
    require_user: bool = False
    """Whether agents must name the end user in every request (400 `user_required`)."""


class ProjectRead(Read, frozen=True, kw_only=True):
    project_id: str
    name: str
    created_at: datetime
    settings: ProjectSettings


class ProjectPatch(Create, frozen=True, kw_only=True):
    """What changes about a project; what is not named stays."""

    name: Name | UnsetType = UNSET
    as_of_floor: Moment | UnsetType | None = UNSET
    """Nobody looks back further than this; null: as far as there is history."""
    trust_mode: Literal["off", "warn", "enforce"] | UnsetType = UNSET
    """How much the trust in sources counts."""
    language: Language | UnsetType = UNSET
    """How words are brought to their stems for recall; what is there is read anew in the background."""
    trace_days: TraceDays | UnsetType = UNSET
    """How long traces of recall are kept."""
    require_user: bool | UnsetType = UNSET
    """Whether agents must name the end user in every request."""
    tenant_id: Slug | None = None
    """Only for the platform key, which belongs to no tenant."""


class ProjectWritten(Read, frozen=True, kw_only=True):
    project: ProjectRead
    created: bool


class ProjectList(Read, frozen=True, kw_only=True):
    projects: list[ProjectRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET


class RateLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Requests a minute by kind of work; 0 means no limit, absent the deployment's default."""

    read: Annotated[int, Meta(ge=0, le=10**9)] | None = None
    write: Annotated[int, Meta(ge=0, le=10**9)] | None = None
    admin: Annotated[int, Meta(ge=0, le=10**9)] | None = None
    expand: Annotated[int, Meta(ge=0, le=10**9)] | None = None


class KeyCreate(Create, frozen=True, kw_only=True):
    kind: KeyKind = "agent"
    agent_id: AgentId | None = None
    """Required for agents; `admin` by default for administrators."""
    project_id: Slug | None = None
    """Absent: the key spans all projects of the tenant, and names one in X-Project-Id."""
    user_id: UserId | None = None
    """The end user an agent's key always acts for; absent: requests name one, or none."""
    scopes: Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(max_length=32)] | None = None
    """Absent: everything an agent, or an administrator, may have."""
    name: Name = ""
    expires_at: Moment | None = None
    rate_limits: RateLimits = RateLimits()
    tenant_id: Slug | None = None
    """Only for the platform key, which belongs to no tenant."""


class KeyRead(Read, frozen=True, kw_only=True):
    key_id: UUID
    kind: KeyKind
    name: str
    agent_id: str
    project_id: str | None
    user_id: str | None
    """The end user it always acts for."""
    scopes: list[str]
    rate_limits: RateLimits
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    rotated_at: datetime | None
    revoked_at: datetime | None


class KeyIssued(Read, frozen=True, kw_only=True):
    """The only time a key is shown whole."""

    key: str
    key_id: UUID
    tenant_id: str
    kind: KeyKind
    agent_id: str
    project_id: str | None
    user_id: str | None
    """The end user it always acts for."""
    scopes: list[str]
    expires_at: datetime | None


class KeyList(Read, frozen=True, kw_only=True):
    keys: list[KeyRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET


class KeyRotate(Create, frozen=True, kw_only=True):
    grace_seconds: Annotated[int, Meta(ge=0, le=7 * 86400)] = 0
    """How long the old secret still works beside the new one."""


class Whoami(Read, frozen=True, kw_only=True):
    """Who the key belongs to, and what it may do."""

    tenant_id: str | None
    project_id: str | None
    kind: Literal["agent", "admin", "platform"]
    agent_id: str | None
    user_id: str | None
    """The end user this request acts for."""
    key_id: UUID
    scopes: list[str]
    gardens: list[str]


class GardenCreate(Create, frozen=True, kw_only=True):
    slug: GardenSlug
    name: Name = ""
    scope: VisibilityIn = "project_shared"
    description: Annotated[str, Meta(max_length=2000)] = ""


class GardenPatch(Create, frozen=True, kw_only=True):
    name: Name | UnsetType = UNSET
    description: Annotated[str, Meta(max_length=2000)] | UnsetType = UNSET


class GardenRead(Read, frozen=True, kw_only=True):
    garden_id: UUID
    slug: str
    name: str
    scope: Visibility
    description: str
    created_by: str
    created_at: datetime


class GardenWritten(Read, frozen=True, kw_only=True):
    garden: GardenRead
    created: bool


class GardenList(Read, frozen=True, kw_only=True):
    gardens: list[GardenRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET


class MemberPut(Create, frozen=True, kw_only=True):
    role: Role


class MemberRead(Read, frozen=True, kw_only=True):
    agent_id: str
    role: Role
    added_by: str
    added_at: datetime


class MemberSet(Read, frozen=True, kw_only=True):
    member: MemberRead
    created: bool


class MemberList(Read, frozen=True, kw_only=True):
    members: list[MemberRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET
