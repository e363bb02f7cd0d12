"""Authentication and access: who calls, in which project, and may they?

Every request asks the database (one call), so a revoked key stops at the next request on every replica. On the hot
path the same call also answers the question.
"""

import hmac
import re
from typing import Any, Literal
from uuid import UUID

import msgspec

from app.access import PLATFORM_KEY_ID, Kind, Principal, hash_secret, require_project
from app.db.database import Database
from app.errors import BadRequest, Forbidden, NotFound, Unauthenticated
from app.web import queries

PROJECT_FORM = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
Work = Literal["read", "write", "admin", "expand"]

KEY_FORM = re.compile(r"pk_([0-9a-f]{32})_([A-Za-z0-9-]{43})\Z")
_NO_LIMITS: dict[str, int] = {}


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What a route demands; every route under /v1 declares one."""

    work: Work
    besides: Work | None = None
    """A second budget it draws on, for what is dearer than most."""
    scopes: tuple[str, ...] = ()
    """One of these; none means any key will do."""
    kinds: tuple[Kind, ...] = ("agent", "admin")
    project: bool = True
    """Whether the route works inside a project."""
    hot: bool = False
    """The handler's own call authenticates."""


class Credentials(msgspec.Struct, frozen=True):
    """What the caller presented."""

    key_id: str
    secret: str
    project: str

    @property
    def secret_hash(self) -> bytes:
        return hash_secret(self.secret)

    def arguments(self) -> tuple[UUID, bytes, str]:
        """The arguments of `authenticate`."""
        return (UUID(self.key_id), self.secret_hash, self.project)


def parse_credentials(authorization: str | None, project: str | None) -> Credentials:
    """Reads the two headers; what cannot be a key is refused without asking the database."""
    if not authorization:
        raise Unauthenticated("Send your key as `Authorization: Bearer pk_...`.", code="key_missing")
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthenticated("Send your key as `Authorization: Bearer pk_...`.", code="key_missing")
    wanted = project or ""
    if wanted and not PROJECT_FORM.match(wanted):
        raise BadRequest("X-Project-Id: not a project id (a-z, 0-9, _ and -, at most 63).", code="invalid_project")
    token = token.strip()
    match = KEY_FORM.match(token)
    if match is None:
        return Credentials(PLATFORM_KEY_ID, token, wanted)
    return Credentials(str(UUID(match[1])), match[2], wanted)


class Authenticator:
    """Turns credentials into a principal."""

    def __init__(self, db: Database, platform_key: str | None) -> None:
        self._db = db
        self._platform_hash = hash_secret(platform_key) if platform_key else None
        match = KEY_FORM.match(platform_key or "")
        # A platform key may look like any other key; then its own id and secret are compared.
        self._platform_id = str(UUID(match[1])) if match else PLATFORM_KEY_ID
        if match:
            self._platform_hash = hash_secret(match[2])

    def platform(self, credentials: Credentials) -> Principal | None:
        """The platform key of the environment, which no database knows."""
        if (
            self._platform_hash is not None
            and credentials.key_id == self._platform_id
            and hmac.compare_digest(credentials.secret_hash, self._platform_hash)
        ):
            return Principal(tenant_id="", key_id=PLATFORM_KEY_ID, kind="platform")
        return None

    async def authenticate(self, credentials: Credentials) -> Principal:
        """Asks the database who this is: one round trip."""
        if (platform := self.platform(credentials)) is not None:
            return platform
        if credentials.key_id == PLATFORM_KEY_ID:
            raise _unknown_key()
        (row,) = await self._db.call(queries.AUTHENTICATE, credentials.arguments())
        return principal_from(row, credentials)

    async def hot(
        self, query: str, credentials: Credentials, *arguments: Any
    ) -> tuple[Principal, list[dict[str, Any]]]:
        """Authenticates and answers in one round trip; `query` comes from `hot_query`."""
        if (platform := self.platform(credentials)) is not None:
            return platform, []
        if credentials.key_id == PLATFORM_KEY_ID:
            raise _unknown_key()
        rows = await self._db.call(query, (*credentials.arguments(), *arguments))
        return principal_from(rows[0], credentials), rows


def principal_from(row: dict[str, Any], credentials: Credentials) -> Principal:
    """The principal a row of `authenticate` describes, or the reason why there is none."""
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
            rate_limits=_NO_LIMITS if limits == "{}" else msgspec.json.decode(limits),
        )
    if outcome == "revoked":
        raise Unauthenticated("This key has been revoked; ask your administrator for a new one.", code="key_revoked")
    if outcome == "expired":
        raise Unauthenticated("This key has expired; ask your administrator for a new one.", code="key_expired")
    if outcome == "project_forbidden":
        raise Forbidden("X-Project-Id: this key belongs to another project.", code="project_forbidden")
    if outcome == "project_unknown":
        raise NotFound("X-Project-Id: there is no such project.", code="project_not_found")
    raise _unknown_key()


def _unknown_key() -> Unauthenticated:
    return Unauthenticated("This key is not known; check that it was copied whole.", code="key_unknown")


def check_access(access: Access, who: Principal) -> None:
    """Refuses a caller who may not use this route."""
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
