"""API keys: issue, list, rotate, revoke, and record when each was last used."""

import asyncio
import hmac
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import structlog
from sqlalchemy.exc import DBAPIError

from app.access import (
    AGENT_SCOPES,
    SCOPES,
    Principal,
    Work,
    acting_scope,
    format_key,
    hash_secret,
    new_id,
    new_secret,
    parse_key,
    parse_user_id,
)
from app.audit import events as audit
from app.db.counts import COUNT_LIMIT
from app.db.database import Database, Row, Session
from app.db.scope import CROSS_PROJECT, Scope
from app.errors import BadRequest, Conflict, Forbidden, NotFound, Unavailable
from app.inputs import as_utc
from app.outcomes import Outcome
from app.paging import Page
from app.tenancy import queries
from app.tenancy.schemas import KeyCreate, KeyIssued, KeyList, KeyRead, KeyRotate, RateLimits, Whoami

log: structlog.stdlib.BoundLogger = structlog.get_logger()

FLUSH_SECONDS = 30.0
# A random id or secret has this many different characters, one that somebody typed often has not.
FEWEST_CHARACTERS = 8


def whoami(who: Principal) -> Whoami:
    """Return the caller's identity, scopes and gardens."""
    return Whoami(
        tenant_id=who.tenant_id or None,
        project_id=who.project_id,
        kind=who.kind,
        agent_id=who.agent_id or None,
        user_id=who.owner_user or None,
        key_id=UUID(who.key_id),
        scopes=sorted(who.scopes),
        gardens=sorted(who.gardens),
    )


async def create_key(
    session: Session, who: Principal, *, data: KeyCreate, limits: dict[Work, int] | None = None
) -> Outcome[KeyIssued]:
    """Issue a key and return it with its secret, which is stored nowhere; `limits` are those of the deployment."""
    if who.kind != "platform":
        _check_rate_limits(data.rate_limits, limits or {})
    row = _new_row(who, data, acting_scope(who, data.tenant_id).tenant_id)
    secret = new_secret()
    await _insert_key(session, who, row, secret)
    return Outcome(_issued(row, row["tenant_id"], secret))


async def register_key(session: Session, who: Principal, *, data: KeyCreate, key: str) -> Outcome[UUID]:
    """Store a key that was made elsewhere, for the command line alone; the same key again changes nothing.

    Raises BadRequest when it is no key or not a random one, and Conflict when its id is in use or it was revoked.
    """
    parsed = parse_key(key)
    if parsed is None:
        raise BadRequest("key: expected pk_, 32 hexadecimal digits, _ and 43 letters or digits.", code="invalid_key")
    key_id, secret = parsed
    if min(len(set(key_id)), len(set(secret))) < FEWEST_CHARACTERS:
        raise BadRequest("key: it is not random; make it with openssl rand.", code="invalid_key")
    tenant_id = acting_scope(who, data.tenant_id).tenant_id
    row = {**_new_row(who, data, tenant_id), "key_id": key_id}
    found = await queries.lock_key(session, tenant_id=tenant_id, key_id=key_id)
    if found is None:
        if await queries.is_key_id_used(session, key_id=key_id):
            raise _key_id_taken()
        await _insert_key(session, who, row, secret)
        return Outcome(UUID(key_id))
    if not hmac.compare_digest(found["secret_hash"], hash_secret(secret)):
        raise _key_id_taken()
    if found["revoked_at"] is not None:
        raise Conflict("This key was revoked; make a new one.", code="key_revoked")
    return Outcome(UUID(key_id), created=False)


async def _insert_key(session: Session, who: Principal, row: dict[str, Any], secret: str) -> None:
    await queries.insert_key(session, row={**row, "secret_hash": hash_secret(secret)})
    details = {"issued": row["key_id"], "kind": row["kind"], "project_id": row["project_id"]}
    await audit.record(session, "key_issue", key_id=who.key_id, **details)


def _new_row(who: Principal, data: KeyCreate, tenant_id: str) -> dict[str, Any]:
    if data.kind == "agent" and data.agent_id is None:
        raise BadRequest("agent_id: required for a key of kind agent.")
    expires_at = None if data.expires_at is None else as_utc(data.expires_at, "expires_at")
    if expires_at is not None and expires_at <= datetime.now(UTC):
        raise BadRequest("expires_at must be in the future.")
    if who.key_project is not None and data.project_id != who.key_project:
        raise Forbidden(
            f"project_id: this key is bound to project {who.key_project} and can issue keys only for it.",
            code="project_forbidden",
        )
    return {
        "tenant_id": tenant_id,
        "key_id": new_id(),
        "kind": data.kind,
        "name": data.name,
        "agent_id": data.agent_id or "admin",
        "project_id": data.project_id,
        "user_id": None if data.user_id is None else _bound_user(data),
        "scopes": _granted_scopes(who, data),
        "rate_limits": msgspec.to_builtins(data.rate_limits),
        "created_at": datetime.now(UTC),
        "expires_at": expires_at,
    }


def _bound_user(data: KeyCreate) -> str:
    if data.kind != "agent":
        raise BadRequest("user_id: only a key of kind agent can act for one user.", code="invalid_user")
    return parse_user_id(data.user_id or "", "user_id")


def _granted_scopes(who: Principal, data: KeyCreate) -> list[str]:
    held = set(SCOPES) if who.kind == "platform" else set(who.scopes)
    if data.scopes is None:
        defaults = SCOPES if data.kind == "admin" else AGENT_SCOPES
        return [scope for scope in defaults if scope in held]
    unknown = sorted(set(data.scopes) - set(SCOPES))
    if unknown:
        raise BadRequest(
            f"scopes: {unknown[0]} is not a scope.", code="unknown_scope", details={"scopes": list(SCOPES)}
        )
    if data.kind == "agent" and "admin" in data.scopes:
        raise BadRequest("scopes: the scope admin needs a key of kind admin.", code="invalid_scope")
    _check_no_escalation(who, data.scopes)
    return [scope for scope in SCOPES if scope in set(data.scopes)]


def _check_no_escalation(who: Principal, scopes: Sequence[str]) -> None:
    missing = sorted(set(scopes) - who.scopes)
    if who.kind != "platform" and missing:
        raise Forbidden(f"scopes: this key lacks {missing[0]} and cannot grant it.", code="scope_escalation")


def _check_rate_limits(requested: RateLimits, limits: dict[Work, int]) -> None:
    for work, maximum in limits.items():
        limit: int | None = getattr(requested, work)
        if limit is not None and maximum and not 0 < limit <= maximum:
            raise Forbidden(
                f"rate_limits.{work}: at most {maximum} a minute; only the platform key can grant more.",
                code="rate_limit_too_high",
            )


def _issued(row: dict[str, Any], tenant_id: str, secret: str) -> KeyIssued:
    return KeyIssued(
        key=format_key(row["key_id"], secret),
        key_id=UUID(row["key_id"]),
        tenant_id=tenant_id,
        kind=row["kind"],
        agent_id=row["agent_id"],
        project_id=row["project_id"],
        user_id=row["user_id"],
        scopes=row["scopes"],
        expires_at=row["expires_at"],
    )


def _present(row: Row) -> KeyRead:
    fields: dict[str, Any] = {column.name: row[column.name] for column in queries.KEY_COLUMNS}
    fields["key_id"] = UUID(str(row["key_id"]))
    fields["rate_limits"] = msgspec.convert(row["rate_limits"], RateLimits)
    return KeyRead(**fields)


async def list_keys(db: Database, who: Principal, *, tenant_id: str | None, page: Page) -> KeyList:
    """Return a page of the keys the caller can reach, oldest first, revoked ones included."""
    scope = acting_scope(who, tenant_id)
    after = None if page.after is None else page.after[0]
    place = {"tenant_id": scope.tenant_id}
    found = await db.fetch(scope, queries.select_keys(**place, after=after, limit=page.limit + 1))
    rows, next_cursor = page.cut(found, key=lambda row: [str(row["key_id"])])
    total = await page.count_rows(db, scope, queries.select_keys(**place, after=None, limit=COUNT_LIMIT))
    return KeyList(keys=[_present(row) for row in rows], next_cursor=next_cursor, total=total)


async def revoke_key(db: Database, who: Principal, *, tenant_id: str | None, key_id: UUID) -> None:
    """Revoke a key, which every replica refuses from the next request on; revoking again changes nothing."""
    scope = acting_scope(who, tenant_id)
    async with db.tenant(scope) as session:
        found = await queries.lock_key(session, tenant_id=scope.tenant_id, key_id=str(key_id))
        if found is None:
            raise _key_not_found()
        if found["revoked_at"] is None:
            await queries.update_key(
                session, tenant_id=scope.tenant_id, key_id=str(key_id), revoked_at=datetime.now(UTC), previous_hash=None
            )
            await audit.record(session, "key_revoke", key_id=who.key_id, revoked=str(key_id))


async def rotate_key(
    session: Session, who: Principal, *, tenant_id: str | None, key_id: UUID, data: KeyRotate
) -> Outcome[KeyIssued]:
    """Give a key a new secret; the old one is refused at once, or after the grace period."""
    address = {"tenant_id": acting_scope(who, tenant_id).tenant_id, "key_id": str(key_id)}
    secret = new_secret()
    found = await queries.lock_key(session, **address)
    if found is None:
        raise _key_not_found()
    if found["revoked_at"] is not None:
        raise Conflict("A revoked key cannot be rotated; create a new one.", code="key_revoked")
    _check_no_escalation(who, found["scopes"])
    now = datetime.now(UTC)
    await queries.update_key(
        session,
        **address,
        secret_hash=hash_secret(secret),
        previous_hash=found["secret_hash"] if data.grace_seconds else None,
        previous_until=now + timedelta(seconds=data.grace_seconds) if data.grace_seconds else None,
        rotated_at=now,
    )
    details = {"rotated": str(key_id), "grace_seconds": data.grace_seconds}
    await audit.record(session, "key_rotation", key_id=who.key_id, **details)
    return Outcome(_issued(found, address["tenant_id"], secret), created=False)


async def replace_platform_key(owner: Database) -> dict[str, Any]:
    """Store a new platform key in place of the old one; needs the connection of the owner."""
    key_id, secret = new_id(), new_secret()
    async with owner.system() as session:
        await queries.insert_platform_key(
            session, key_id=key_id, secret_hash=hash_secret(secret), now=datetime.now(UTC)
        )
    return {"key": format_key(key_id, secret), "key_id": key_id, "kind": "platform"}


def _key_id_taken() -> Conflict:
    return Conflict("Another key has this id; make a new one.", code="key_id_taken")


def _key_not_found() -> NotFound:
    return NotFound("There is no such key.", code="key_not_found")


class KeyUsage:
    """Records when keys were used, in batches every half minute instead of on every request."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._used: dict[str, dict[str, datetime]] = {}

    def note(self, who: Principal) -> None:
        """Note one admitted request."""
        if who.tenant_id:
            self._used.setdefault(who.tenant_id, {})[who.key_id] = datetime.now(UTC)

    async def run(self) -> None:
        """Flush periodically until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Write what was noted; drop what cannot be written now, since it is only informative."""
        used, self._used = self._used, {}
        for tenant_id, keys in used.items():
            try:
                async with self._db.tenant(Scope(tenant_id=tenant_id, reach=CROSS_PROJECT)) as session:
                    # In the order of key ids, so that two replicas cannot deadlock.
                    for key_id, used_at in sorted(keys.items()):
                        await queries.update_key(session, tenant_id=tenant_id, key_id=key_id, last_used_at=used_at)
            except (DBAPIError, psycopg.Error, Unavailable) as problem:
                log.warning("key_usage_lost", error=type(problem).__name__)
