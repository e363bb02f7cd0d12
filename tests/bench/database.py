"""A migrated database for a bench run: TEST_DATABASE_URL's server, or an embedded one of its own."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from app.db import migrations
from app.db.embedded import EmbeddedServer
from app.db.rls import APP_ROLE
from tests.conftest import TestDatabase


@contextmanager
def bench_database() -> Iterator[TestDatabase]:
    """A fresh database with roles and schema."""
    with _server() as superuser:
        name = f"palimpsest_bench_{secrets.token_hex(4)}"
        with psycopg.connect(superuser, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        there = make_conninfo(superuser, dbname=name)
        migrations.ensure_roles(there)
        migrations.upgrade(there)
        try:
            yield TestDatabase(name=name, superuser=there, owner=there, app=make_conninfo(there, user=APP_ROLE))
        finally:
            with psycopg.connect(superuser, autocommit=True) as connection:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@contextmanager
def _server() -> Iterator[str]:
    given = os.environ.get("TEST_DATABASE_URL")
    if given:
        yield given
        return
    home = Path(tempfile.mkdtemp(prefix="palimpsest-bench-"))
    home.chmod(0o755)
    server = EmbeddedServer(home)
    server.start()
    try:
        yield server.conninfo(user="postgres", dbname="postgres")
    finally:
        server.release()
        shutil.rmtree(home, ignore_errors=True)
