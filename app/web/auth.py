"""Authentication of keys and access control of routes.

Every request looks its key up in the database, so a revoked key is refused by every replica from the next request on.
On the hot path one round trip both authenticates and runs the query.
"""

import hmac
import re
from typing import Any
from uuid import UUID

import msgspec

from app.access import (
    PLATFORM_KEY_ID,
    Kind,
    Principal,
    Work,
    hash_secret,
    parse_key,
    parse_user_id,
    require_project,
    require_user,
    user_forbidden,
)
from app.db.database import Database, Row
from app.db.scope import ScopedFunction
from app.errors import BadRequest, Forbidden, NotFound, Unauthenticated
from app.web import queries

PROJECT_FORM = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
MAX_REMEMBERED_KEYS = 100_000
_NO_LIMITS: dict[str, int] = {}


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What a route requires of the caller; every route under /v1 declares one."""

    work: Work
    also_counts_as: Work | None = None
    """A second rate limit it counts against, for expensive requests."""
    cost: int = 1
    """How much of its tenant's share of running requests it takes."""
    scopes: tuple[str, ...] = ()
    """The key needs one of these; empty: none."""
    kinds: tuple[Kind, ...] = ("agent", "admin")
    project: bool = True
    """Whether the caller must be in a project."""
    user_in_body: bool = False
    """Whether the body may name the user, so that the handler checks whether one is required."""
    hot: bool = False
    """Whether the handler authenticates by itself, in one round trip with its query."""


class Credentials(msgspec.Struct, frozen=True):
    """The key, project and user that the caller sent."""

    key_id: str
    secret: str
    project: str
    user: str = ""

    @property
    def secret_hash(self) -> bytes:
        return hash_secret(self.secret)

    def arguments(self) -> tuple[UUID, bytes, str, str]:
        """Return the arguments of `authenticate`."""
        return (UUID(self.key_id), self.secret_hash, self.project, self.user)


def parse_credentials(authorization: str | None, project: str | None, user: str | None = None) -> Credentials:
    """Parse the headers, or raise Unauthenticated or BadRequest without asking the database."""
    if not authorization:
        raise Unauthenticated("Send your key as `Authorization: Bearer pk_...`.", code="key_missing")
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthenticated("Send your key as `Authorization: Bearer pk_...`.", code="key_missing")
    project_id = project or ""
    if project_id and not PROJECT_FORM.match(project_id):
        raise BadRequest(
            "X-Project-Id: not a project id; use a-z, 0-9, _ and -, at most 63 characters.", code="invalid_project"
        )
    token = token.strip()
    key_id, secret = parse_key(token) or (PLATFORM_KEY_ID, token)
    return Credentials(key_id, secret, project_id, "" if user is None else _parse_user(user))


def _parse_user(header: str) -> str:
    """Return the user that a header names, which arrives as bytes in Latin-1 but is UTF-8."""
    try:
        return parse_user_id(header.encode("latin-1").decode(), "X-User-Id")
    except UnicodeDecodeError as problem:
        raise BadRequest("X-User-Id: not valid UTF-8.", code="invalid_user") from problem


class Authenticator:
    """Finds the principal of credentials."""

    def __init__(self, db: Database, platform_key: str | None) -> None:
        self._db = db
        # A platform key may have the form of other keys; then its id and secret are compared.
        self._platform_id, secret = parse_key(platform_key or "") or (PLATFORM_KEY_ID, platform_key)
        self._platform_hash = hash_secret(secret) if secret else None
        self._tenants: dict[str, str] = {}

    def platform(self, credentials: Credentials) -> Principal | None:
        """Return the platform principal when the credentials are the PLATFORM_KEY of the environment."""
        if (
            self._platform_hash is not None
            and credentials.key_id == self._platform_id
            and hmac.compare_digest(credentials.secret_hash, self._platform_hash)
        ):
            return Principal(tenant_id="", key_id=PLATFORM_KEY_ID, kind="platform")
        return None

    async def authenticate(self, credentials: Credentials) -> Principal:
        """Return the principal or raise Unauthenticated, Forbidden or NotFound, in one round trip."""
        if (platform := self.platform(credentials)) is not None:
            return platform
        if credentials.key_id == PLATFORM_KEY_ID:
            raise _unknown_key()
        (row,) = await self._db.call(queries.AUTHENTICATE, credentials.arguments())
        return self._remembered(principal_from(row, credentials))

    async def call(
        self, function: ScopedFunction, credentials: Credentials, *arguments: Any
    ) -> tuple[Principal, list[Row]]:
        """Authenticate and call a function in the caller's scope, in one round trip; the platform key gets no rows."""
        if (platform := self.platform(credentials)) is not None:
            return platform, []
        if credentials.key_id == PLATFORM_KEY_ID:
            raise _unknown_key()
        rows = await self._db.call(queries.authenticated_call(function), (*credentials.arguments(), *arguments))
        return self._remembered(principal_from(rows[0], credentials)), rows

    def tenant_of(self, credentials: Credentials) -> str:
        """Return the tenant of a key that was used before, else none; for queueing only, since it proves nothing."""
        return self._tenants.get(credentials.key_id, "")

    def _remembered(self, who: Principal) -> Principal:
        if who.key_id not in self._tenants:
            if len(self._tenants) >= MAX_REMEMBERED_KEYS:
                self._tenants.clear()
            self._tenants[who.key_id] = who.tenant_id
        return who


def principal_from(row: dict[str, Any], credentials: Credentials) -> Principal:
    """Return the principal that a row of `authenticate` describes, or raise the error it describes."""
    outcome = row["who_outcome"]
    if outcome == "ok":
        limits: str = row["who_rate_limits"]
        return Principal(
            tenant_id=row["who_tenant"] or "",
            project_id=row["who_project"],
            agent_id=row["who_agent"] or "",
            gardens=tuple(row["who_gardens"]),
            key_id=credentials.key_id,
            kind=row["who_kind"],
            scopes=frozenset(row["who_scopes"]),
            key_project=row["who_key_project"],
            user_id=row["who_user"],
            key_user=row["who_key_user"],
            rate_limits=_NO_LIMITS if limits == "{}" else msgspec.json.decode(limits),
        )
    if outcome == "revoked":
        raise Unauthenticated("This key has been revoked; ask your administrator for a new one.", code="key_revoked")
    if outcome == "expired":
        raise Unauthenticated("This key has expired; ask your administrator for a new one.", code="key_expired")
    if outcome == "project_forbidden":
        raise Forbidden("X-Project-Id: this key is bound to another project.", code="project_forbidden")
    if outcome == "project_unknown":
        raise NotFound("X-Project-Id: there is no such project.", code="project_not_found")
    if outcome == "user_forbidden":
        raise user_forbidden("X-User-Id")
    raise _unknown_key()


def _unknown_key() -> Unauthenticated:
    return Unauthenticated("This key is unknown; check that it was copied completely.", code="key_unknown")


def check_access(access: Access, who: Principal) -> None:
    """Raise Forbidden or BadRequest unless the caller may use the route."""
    if who.kind not in access.kinds:
        raise Forbidden(f"This needs a key of kind {' or '.join(access.kinds)}.", code="wrong_key_kind")
    if access.scopes and who.kind != "platform" and who.scopes.isdisjoint(access.scopes):
        raise Forbidden(
            f"This key lacks the scope {' or '.join(access.scopes)}.",
            code="missing_scope",
            details={"needs": list(access.scopes)},
        )
    if access.project:
        require_project(who)
        if not access.user_in_body:
            require_user(who)
