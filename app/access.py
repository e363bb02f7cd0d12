"""The caller of a use case: who they are, what they may do, and the ids and secrets of their keys."""

import hashlib
import re
import secrets
import unicodedata
from typing import Any, Literal, Protocol, Self
from uuid import UUID

import msgspec
import uuid_utils

from app.db.database import Row
from app.db.scope import CROSS_PROJECT, EVERY_USER, SHARED, Scope, ScopedFunction
from app.errors import BadRequest, Forbidden, NotFound

CROSS_PROJECT_SCOPE = "graph:admin:cross-project"
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
    CROSS_PROJECT_SCOPE,
    "graph:admin:metrics",
    "history:as_of",
    "predicates:admin",
    "admin",
)
# What an agent's key gets unless its scopes are named: everything but administration.
AGENT_SCOPES = tuple(
    scope for scope in SCOPES if scope not in ("admin", "predicates:admin") and not scope.startswith("graph:admin")
)

Kind = Literal["agent", "admin", "platform"]
# The kinds of requests that rate limits count separately.
Work = Literal["read", "write", "admin", "expand"]

KEY_FORM = re.compile(r"pk_([0-9a-f]{32})_([A-Za-z0-9-]{43})\Z")
MAX_USER_LENGTH = 255
PLATFORM_KEY_ID = "00000000-0000-0000-0000-000000000000"


class Principal(Scope, frozen=True, kw_only=True):
    """The authenticated caller, which is also the scope of their transactions."""

    key_id: str
    kind: Kind
    scopes: frozenset[str] = frozenset()
    key_project: str | None = None
    key_user: str | None = None
    """The end user that the key always acts for."""
    rate_limits: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def is_admin(self) -> bool:
        return self.kind == "admin"

    @property
    def is_tenant_admin(self) -> bool:
        """Whether the key is an administrator's and not bound to one project, so that it may change shared rows."""
        return self.is_admin and self.key_project is None

    def across_projects(self) -> Self:
        """Return the caller with access to all projects of the tenant, unless an agent or bound to a project."""
        if self.kind == "agent" or self.key_project is not None:
            return self
        return msgspec.structs.replace(self, reach=CROSS_PROJECT)

    def with_shared(self) -> Self:
        """Return the caller who also reads what other projects of the tenant share, if their key may."""
        if CROSS_PROJECT_SCOPE not in self.scopes:
            return self
        return msgspec.structs.replace(self, reach=SHARED)


class AuthenticatedCall(Protocol):
    """Authenticates the caller and calls a SQL function in their scope, in one round trip."""

    async def __call__(self, function: ScopedFunction, *arguments: Any) -> tuple[Principal, list[Row]]: ...


def new_id() -> str:
    """Return a new UUIDv7."""
    return str(uuid_utils.uuid7())


def new_secret() -> str:
    """Return 256 random bits in characters that need no quoting in shells, URLs or headers."""
    while True:
        secret = secrets.token_urlsafe(32)
        if "_" not in secret:
            return secret


def hash_secret(secret: str) -> bytes:
    """Return the hash by which a secret is stored and looked up."""
    return hashlib.sha256(secret.encode()).digest()


def format_key(key_id: str, secret: str) -> str:
    """Return the key as its holder sends it."""
    return f"pk_{key_id.replace('-', '')}_{secret}"


def parse_key(key: str) -> tuple[str, str] | None:
    """Return the id and the secret of a key, or None when it does not have the form of one."""
    match = KEY_FORM.match(key)
    return None if match is None else (str(UUID(match[1])), match[2])


def require_project(who: Principal) -> str:
    """Return the project of the caller or raise BadRequest when a key that spans projects names none."""
    if who.project_id is None:
        raise BadRequest("X-Project-Id: this key spans projects; name the one to use.", code="project_required")
    return who.project_id


def parse_user_id(text: str, field: str) -> str:
    """Return the id of an end user as it is stored, or raise BadRequest."""
    normal = unicodedata.normalize("NFC", text)
    if not 1 <= len(normal) <= MAX_USER_LENGTH or any(
        unicodedata.category(letter) in ("Cc", "Cs") for letter in normal
    ):
        raise BadRequest(f"{field}: 1 to {MAX_USER_LENGTH} characters without control characters.", code="invalid_user")
    if normal == EVERY_USER:
        raise BadRequest(f"{field}: {EVERY_USER} is not the id of a user.", code="invalid_user")
    return normal


def as_user(who: Principal, given: str | None) -> Principal:
    """Return the caller for the end user that a body names; raise BadRequest or Forbidden where that cannot be.

    A header may name the same user, and so may the key, which then always acts for that user.
    """
    if given is None:
        return require_user(who)
    user = parse_user_id(given, "user_id")
    if who.key_user is not None and who.key_user != user:
        raise user_forbidden("user_id")
    if who.user_id not in ("", EVERY_USER, user):
        raise BadRequest("user_id: the header X-User-Id names another user; send one of the two.", code="user_mismatch")
    return msgspec.structs.replace(who, user_id=user)


def require_user(who: Principal) -> Principal:
    """Return the caller, or raise BadRequest when their project demands a user and the request names none."""
    if who.user_id == "":
        raise BadRequest(
            "user_id: this project demands a user; name one in X-User-Id or user_id.", code="user_required"
        )
    return who


def user_forbidden(field: str) -> Forbidden:
    """Return the error for a key that acts for another user."""
    return Forbidden(f"{field}: this key acts for another user.", code="user_forbidden")


def require_own(who: Principal, row_user: str, what: str) -> None:
    """Raise Forbidden when the caller acts for a user, and the row is common to all users."""
    if who.user_id not in (EVERY_USER, row_user):
        raise shared_read_only(what)


def shared_read_only(what: str) -> Forbidden:
    """Return the error for a user who would change what is common to all users."""
    return Forbidden(
        f"{what} is common to all users, who can only read it; change it without a user.", code="shared_read_only"
    )


def require_whole_tenant(who: Principal, what: str) -> None:
    """Raise Forbidden when the caller's key is bound to a project, and `what` belongs to all projects of the tenant."""
    if who.key_project is not None:
        raise Forbidden(
            f"{what} belongs to all projects of the tenant, and this key is bound to project {who.key_project}; use an "
            "admin key that is bound to no project.",
            code="project_forbidden",
        )


def acting_scope(who: Principal, tenant_id: str | None) -> Scope:
    """Return the scope of an administrative call: the caller's tenant, or the one the platform key names."""
    if who.kind == "platform":
        if tenant_id is None:
            raise BadRequest("tenant_id: the platform key belongs to no tenant; name one.", code="tenant_required")
        return Scope(tenant_id=tenant_id, reach=CROSS_PROJECT)
    if tenant_id is not None and tenant_id != who.tenant_id:
        raise NotFound(f"tenant_id: there is no tenant {tenant_id}.", code="tenant_not_found")
    return who.across_projects()
