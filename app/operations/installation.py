"""Where this installation keeps its database: the embedded server, or the one DATABASE_URL names."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from app.config import Settings
from app.db import migrations
from app.db.embedded import EmbeddedServer, EmbeddedServerError
from app.db.rls import APP_ROLE
from app.errors import StartupError

DATABASE = "palimpsest"

Say = Callable[[str], None]


@contextmanager
def database_of(settings: Settings, *, say: Say) -> Generator[Settings]:
    """The settings with both addresses filled in; the embedded server runs at least as long as this block."""
    if not settings.embedded:
        yield settings
        return
    server = EmbeddedServer(settings.home, say=say)
    try:
        server.start()
    except EmbeddedServerError as problem:
        raise StartupError(str(problem), code="embedded_server") from problem
    try:
        yield _embedded_settings(settings, server, say)
    finally:
        server.release()


def _embedded_settings(settings: Settings, server: EmbeddedServer, say: Say) -> Settings:
    with psycopg.connect(server.conninfo(user="postgres", dbname="postgres"), autocommit=True) as connection:
        if connection.execute("SELECT FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone() is None:
            connection.execute(f"CREATE DATABASE {DATABASE}".encode())
    owner = _as_url(server.conninfo(user="postgres", dbname=DATABASE))
    for line in migrations.ensure_roles(owner):
        if "password" not in line:
            say(line)
    return replace(
        settings,
        database_url=_as_url(server.conninfo(user=APP_ROLE, dbname=DATABASE)),
        database_migration_url=owner,
    )


def _as_url(conninfo: str) -> str:
    parts = {name: str(value) for name, value in conninfo_to_dict(conninfo).items()}
    return f"postgresql://{parts['user']}@/{parts['dbname']}?host={quote(parts['host'], safe='')}&port={parts['port']}"


def _check_reachable(conninfo: str) -> None:
    try:
        psycopg.connect(conninfo, connect_timeout=10).close()
    except psycopg.OperationalError as problem:
        reason = (str(problem).strip().splitlines() or ["no answer"])[-1].strip()
        raise StartupError(f"The database cannot be reached: {reason}", code="unavailable") from problem


def migrate(settings: Settings, *, revision: str = "head", say: Say) -> None:
    """Roles, then migrations; says what it does, and that there was nothing to do."""
    conninfo = migrations.migration_conninfo(settings)
    _check_reachable(conninfo)
    for line in migrations.ensure_roles(conninfo, app_conninfo=settings.database_url):
        say(line)
    wanted = migrations.head_revision() if revision == "head" else revision
    before = migrations.current_revision(conninfo)
    if before == wanted:
        say(f"the database is at migration {wanted}: nothing to do")
        return
    say(f"migrating the database from {before or 'nothing'} to {wanted}")
    migrations.upgrade(conninfo, wanted)
    say(f"the database is at migration {wanted}")
