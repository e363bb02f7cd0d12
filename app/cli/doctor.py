"""The doctor: checks what an installation depends on, and how to fix what is wrong."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any

import msgspec
import psycopg
from psycopg.rows import dict_row

from app.config import Settings
from app.db.catalogue import find_drift
from app.db.functions import functions_hash
from app.db.migrations import head_revision
from app.db.releases import NOT_MIGRATED, read_state
from app.db.rls import APP_ROLE
from app.db.schema import load_metadata
from app.db.server import MINIMUM_VERSION, NEEDED, describe_version
from app.errors import ConfigError, StartupError

MINIMUM_VECTOR = (0, 8)
CLOCK_SECONDS = 5.0


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check."""

    check: str
    ok: bool
    found: str
    remedy: str = ""


Check = Callable[[psycopg.AsyncConnection[Any]], Awaitable[Finding]]


def examine(settings: Settings) -> list[Finding]:
    """Return all findings, in the order in which to fix them."""
    return asyncio.run(_examine(settings))


async def _examine(settings: Settings) -> list[Finding]:
    if settings.database_url is None:
        raise ConfigError("DATABASE_URL is not set.")
    try:
        connection = await psycopg.AsyncConnection.connect(
            settings.database_url, connect_timeout=5, autocommit=True, prepare_threshold=None
        )
    except psycopg.OperationalError as problem:
        reason = str(problem).strip().splitlines()[-1]
        return [
            Finding(
                check="connection",
                ok=False,
                found=reason,
                remedy=f"check DATABASE_URL: host, port, database, and the password of {APP_ROLE}; "
                "palimpsest migrate makes the role",
            )
        ]
    async with connection:
        version = _version(connection.info)
        if not version.ok:
            # The other checks would only name its consequences.
            return [version]
        checks: list[Check] = [_extension, _role, _migration, _policies, _clock, _embedding]
        return [version, *[await check(connection) for check in checks], _secrets(settings)]


async def _value(connection: psycopg.AsyncConnection[Any], query: str) -> Any:
    row = await (await connection.execute(query.encode())).fetchone()
    return None if row is None else row[0]


def _version(info: psycopg.ConnectionInfo) -> Finding:
    return Finding(
        check="database version",
        ok=info.server_version >= MINIMUM_VERSION,
        found=describe_version(info.server_version),
        remedy=f"Palimpsest needs {NEEDED}; upgrade the server, or name another one in DATABASE_URL",
    )


async def _extension(connection: psycopg.AsyncConnection[Any]) -> Finding:
    version = await _value(connection, "SELECT extversion FROM pg_extension WHERE extname = 'vector'")
    numbers = tuple(int(part) for part in (version or "0").split(".")[:2])
    return Finding(
        check="extension pgvector",
        ok=numbers >= MINIMUM_VECTOR,
        found=version or "not installed in this database",
        remedy="install pgvector 0.8 or newer and run CREATE EXTENSION vector (or ALTER EXTENSION vector UPDATE)",
    )


async def _role(connection: psycopg.AsyncConnection[Any]) -> Finding:
    name = await _value(connection, "SELECT current_user")
    return Finding(
        check="role",
        ok=name == APP_ROLE,
        found=name,
        remedy=f"let DATABASE_URL name {APP_ROLE}; palimpsest migrate creates it",
    )


async def _migration(connection: psycopg.AsyncConnection[Any]) -> Finding:
    async def fetch(query: str) -> list[dict[str, Any]]:
        async with connection.cursor(row_factory=dict_row) as cursor:
            return await (await cursor.execute(query.encode())).fetchall()

    problem, newer, found, code = None, False, "unreadable", NOT_MIGRATED
    try:
        state = await read_state(fetch, functions_hash=functions_hash())
        problem, newer, found, code = state.problem, state.newer, state.revision or "none", state.code
    except psycopg.errors.InsufficientPrivilege as refused:
        problem = str(refused).strip()
    relation = "a newer release of the same compatibility level" if newer else f"newest is {head_revision()}"
    return Finding(
        check="migrations",
        ok=problem is None,
        found=f"at {found}, {relation}" + (f": {problem}" if problem else ""),
        remedy="run palimpsest migrate (on your own server with DATABASE_MIGRATION_URL set)"
        if code == NOT_MIGRATED
        else "start the release that migrated the database, or a newer one",
    )


async def _policies(connection: psycopg.AsyncConnection[Any]) -> Finding:
    try:
        drift = await find_drift(connection, load_metadata())
    except (StartupError, psycopg.errors.InsufficientPrivilege):
        drift = ["not checked before the database is migrated"]
    return Finding(
        check="role and policies",
        ok=not drift,
        found="; ".join(drift) or "exactly as this version needs them",
        remedy="run palimpsest migrate --repair, and undo by hand what it leaves: roles, settings and what is not ours",
    )


async def _clock(connection: psycopg.AsyncConnection[Any]) -> Finding:
    theirs: datetime = await _value(connection, "SELECT clock_timestamp()")
    skew = abs((theirs - datetime.now(UTC)).total_seconds())
    return Finding(
        check="clock",
        ok=skew <= CLOCK_SECONDS,
        found=f"{skew:.1f} s apart from the database's",
        remedy="synchronise both machines' clocks (NTP)",
    )


async def _embedding(connection: psycopg.AsyncConnection[Any]) -> Finding:
    try:
        model = await _value(
            connection, "SELECT provider || '/' || model || '@' || dimensions FROM embedding_models WHERE active"
        )
    except psycopg.Error:
        model = None
    local = model is not None and model.startswith("local/")
    return Finding(
        check="embedding set-up",
        ok=not local or find_spec("onnxruntime") is not None,
        found=f"vectors are made with {model}" if model else "no model is active: recall works without vectors",
        remedy="run make install, or choose another model (palimpsest embeddings add)",
    )


def _secrets(settings: Settings) -> Finding:
    stored: list[str] = []
    if settings.signing_key is None:
        stored.append("the database signs receipts, with a key that the service's role cannot read (no SIGNING_KEY)")
    if settings.cursor_secret is None:
        stored.append("the secret of cursors is in the database, where that role can read it; better set CURSOR_SECRET")
    return Finding(check="secrets", ok=True, found="; ".join(stored) or "in the environment, not in the database")
