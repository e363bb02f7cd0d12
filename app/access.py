"""The caller of a use case: who they are, what they may do, and the ids and secrets of their keys."""

import hashlib
import secrets
from typing import Literal, Self

import msgspec
import uuid_utils

from app.db.scope import CROSS_PROJECT, Scope
from app.errors import BadRequest, NotFound

SCOPES = (
    "notes:read",
    "notes:write",
    "facts:read",
    "facts:write",
    "graph:read",
    "graph:write",
    "graph:search:read",
    "graph:search:debug",
    "graph:search:citations",
    "graph:branch:read",
    "graph:admin:cross-project",
    "graph:admin:metrics",
    "history:as_of",
    "admin",
)
AGENT_SCOPES = tuple(scope for scope in SCOPES if scope != "admin" and not scope.startswith("graph:admin"))

Kind = Literal["agent", "admin", "platform"]

PLATFORM_KEY_ID = "00000000-0000-0000-0000-000000000000"


class Principal(Scope, frozen=True, kw_only=True):
    """Who calls; it is also the scope of their transactions."""

    key_id: str
    kind: Kind
    scopes: frozenset[str] = frozenset()
    key_project: str | None = None
    rate_limits: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def is_admin(self) -> bool:
        return self.kind == "admin"

    def across_projects(self) -> Self:
        """The same caller over all projects of the tenant, when the key is bound to none."""
        if self.kind == "agent" or self.key_project is not None:
            return self
        return msgspec.structs.replace(self, reach=CROSS_PROJECT)


def new_id() -> str:
    """A new UUIDv7."""
    return str(uuid_utils.uuid7())


def new_secret() -> str:
    """256 random bits, in characters that need no quoting anywhere."""
    while True:
        secret = secrets.token_urlsafe(32)
        if "_" not in secret:
            return secret


def hash_secret(secret: str) -> bytes:
    """What is stored of a secret."""
    return hashlib.sha256(secret.encode()).digest()


def format_key(key_id: str, secret: str) -> str:
    """The key as its holder sees it, once."""
    return f"pk_{key_id.replace('-', '')}_{secret}"


def require_project(who: Principal) -> str:
    """The project the caller works in; a key that spans projects has to name one."""
    if who.project_id is None:
        raise BadRequest("X-Project-Id: this key spans projects, so name one.", code="project_required")
    return who.project_id


def acting_scope(who: Principal, tenant_id: str | None) -> Scope:
    """Return the scope of an administrative call: the caller's tenant, or the one the platform key names."""
    if who.kind == "platform":
        if tenant_id is None:
            raise BadRequest("tenant_id: the platform key belongs to no tenant, so name one.", code="tenant_required")
        return Scope(tenant_id=tenant_id, reach=CROSS_PROJECT)
    if tenant_id is not None and tenant_id != who.tenant_id:
        raise NotFound(f"tenant_id: there is no tenant {tenant_id}.", code="tenant_not_found")
    return who.across_projects()
