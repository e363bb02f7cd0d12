"""The database of an installation: the embedded server, or the one of DATABASE_URL."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from app.cli.administration import as_owner
from app.config import Settings
from app.db import migrations, releases
from app.db.embedded import EmbeddedServer, EmbeddedServerError
from app.db.functions import functions_hash
from app.db.rls import APP_ROLE
from app.db.server import check_version
from app.embeddings.administration import adopt_model
from app.errors import StartupError

DATABASE = "palimpsest"
WATCH_SECONDS = 2.0
NAMED_CHANGES = 20

Say = Callable[[str], None]


@contextmanager
def database_of(settings: Settings, *, say: Say, watch: bool = False) -> Generator[Settings]:
    """Yield the settings with both database URLs, and keep the embedded server running for the block.

    With `watch`, a server that dies in the meantime is started again.
    """
    if not settings.embedded:
        yield settings
        return
    server = EmbeddedServer(settings.home, say=say)
    try:
        server.start()
    except EmbeddedServerError as problem:
        raise StartupError(str(problem), code="embedded_server") from problem
    done = threading.Event()
    watcher = threading.Thread(target=_keep_running, args=(server, done, say), daemon=True)
    try:
        ready = _embedded_settings(settings, server, say)
        if watch:
            watcher.start()
        yield ready
    finally:
        done.set()
        if watcher.is_alive():
            watcher.join()
        server.release()


def _keep_running(server: EmbeddedServer, done: threading.Event, say: Say) -> None:
    conninfo = server.conninfo(user="postgres", dbname="postgres")
    while not done.wait(WATCH_SECONDS):
        try:
            psycopg.connect(conninfo, connect_timeout=5).close()
        except psycopg.OperationalError:
            if done.is_set():
                return
            say("PostgreSQL does not answer; starting it again")
            try:
                server.start()
            except EmbeddedServerError as problem:
                say(f"PostgreSQL could not be started: {problem}")


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


def _check_server(conninfo: str) -> None:
    """Raise StartupError when the server cannot be reached or is too old."""
    try:
        with psycopg.connect(conninfo, connect_timeout=10) as connection:
            check_version(connection.info)
    except psycopg.OperationalError as problem:
        reason = (str(problem).strip().splitlines() or ["no answer"])[-1].strip()
        raise StartupError(f"The database cannot be reached: {reason}", code="unavailable") from problem


def migrate(settings: Settings, *, revision: str = "head", keep_newer: bool = True, say: Say) -> None:
    """Create roles, apply migrations and install functions; say what was done, or that there was nothing to do.

    With `keep_newer`, a database that a newer release of the same compatibility level migrated stays as it is: an old
    process that starts again must not take away what new ones already use.
    """
    conninfo = migrations.migration_conninfo(settings)
    _check_server(conninfo)
    for line in migrations.ensure_roles(conninfo, app_conninfo=settings.database_url):
        say(line)
    if keep_newer and releases.is_newer(conninfo, functions_hash=functions_hash()):
        say("a newer release of the same compatibility level migrated the database: nothing to do")
        return
    wanted = migrations.head_revision() if revision == "head" else revision
    before = migrations.current_revision(conninfo)
    if before != wanted:
        say(f"migrating the database from {before or 'nothing'} to {wanted}")
    changes = migrations.upgrade(conninfo, wanted)
    if before == wanted and not changes:
        say(f"the database is at migration {wanted}: nothing to do")
    else:
        for line in changes if len(changes) <= NAMED_CHANGES else [f"installed {len(changes)} functions"]:
            say(line)
        say(f"the database is at migration {wanted}")
    if settings.embedding_model is not None and revision == "head":
        as_owner(settings, lambda owner: adopt_model(owner, settings, say=say))
