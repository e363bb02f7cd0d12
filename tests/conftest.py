"""A real PostgreSQL, real migrations, the production driver, the non-owner role, and real commits."""

import asyncio
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from app.access import AGENT_SCOPES
from app.cli import administration
from app.config import Settings
from app.db import migrations
from app.db.database import Database
from app.db.embedded import EmbeddedServer
from app.db.rls import APP_ROLE, OWNER_ROLE
from app.main import open_database
from app.tenancy.schemas import KeyCreate, ProjectCreate, TenantCreate
from tests import function_calls
from tests.service import RunningService
from tests.shared_installation import SharedInstallation

T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = f"palimpsest_test_template_{os.getpid()}"


def pytest_configure(config: pytest.Config) -> None:
    """Report which SQL functions a long run executed; refuse to share one server among processes."""
    config.pluginmanager.register(function_calls)
    # Some tests change the server's roles.
    if os.environ.get("TEST_DATABASE_URL") and getattr(config.option, "numprocesses", None):
        raise pytest.UsageError("TEST_DATABASE_URL names one server, and test processes cannot share it: use -n 0.")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run modules with slow tests first, so that no worker is left alone with a long one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session")
def superuser_conninfo() -> Iterator[str]:
    """A server of this test process: TEST_DATABASE_URL, else a container, else an embedded server."""
    given = os.environ.get("TEST_DATABASE_URL")
    if given:
        yield given.replace("+psycopg", "")
        return
    if _docker_answers():
        from testcontainers.postgres import PostgresContainer

        with PostgresContainer("pgvector/pgvector:pg18", driver=None) as container:
            conninfo = container.get_connection_url()
            without_durability(conninfo)
            yield conninfo
        return
    home = Path(tempfile.mkdtemp(prefix="palimpsest-tests-"))
    # Reachable for the account PostgreSQL runs as when the tests run as root.
    home.chmod(0o755)
    server = EmbeddedServer(home)
    # Also when this process is killed: a server ends by itself once its folder is gone.
    cleaning = ["/bin/sh", "-c", 'cat > /dev/null; rm -rf "$0"', str(home)]
    with subprocess.Popen(cleaning, stdin=subprocess.PIPE, start_new_session=True):
        server.start()
        conninfo = server.conninfo(user="postgres", dbname="postgres")
        try:
            without_durability(conninfo)
            yield conninfo
        finally:
            server.release()
            shutil.rmtree(home, ignore_errors=True)


def without_durability(conninfo: str) -> None:
    """Turn off what protects a server's data against a crash of the machine: these data end with the tests."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            connection.execute(f"ALTER SYSTEM SET {setting} = off".encode())
        connection.execute("SELECT pg_reload_conf()")


def _docker_answers() -> bool:
    # Asked by hand: the Docker client leaves its socket open when nobody answers.
    if os.environ.get("DOCKER_HOST"):
        return True
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect("/var/run/docker.sock")
        except OSError:
            return False
        return True


@dataclass(frozen=True)
class TestDatabase:
    """One database of its own, as three roles."""

    __test__ = False

    name: str
    superuser: str
    owner: str
    app: str
    password: str = field(repr=False, default="")

    def url(self, role: str) -> str:
        """The same as a URL, for processes that read the environment."""
        return as_url({"app": self.app, "owner": self.owner, "superuser": self.superuser}[role])

    def settings(self, **changes: Any) -> Settings:
        """Settings of a service on this database."""
        return Settings(
            **{
                "database_url": self.url("app"),
                "database_migration_url": self.url("superuser"),
                "pool_size": 4,
                **changes,
            }
        )


def as_url(conninfo: str) -> str:
    """A connection string as a URL."""
    from urllib.parse import quote

    parts = {name: str(value) for name, value in conninfo_to_dict(conninfo).items()}
    login = quote(parts["user"]) + (f":{quote(parts['password'], safe='')}" if "password" in parts else "")
    host = parts["host"]
    if host.startswith("/"):
        return f"postgresql://{login}@/{parts['dbname']}?host={quote(host, safe='')}&port={parts.get('port', '5432')}"
    return f"postgresql://{login}@{host}:{parts.get('port', '5432')}/{parts['dbname']}"


@pytest.fixture(scope="session")
def app_password(superuser_conninfo: str) -> str:
    """A password for the app role, where the server asks for one."""
    return (conninfo_to_dict(superuser_conninfo).get("password") and secrets.token_hex(16)) or ""


@pytest.fixture(scope="session")
def template(superuser_conninfo: str, app_password: str) -> Iterator[str]:
    """A migrated database that others are cloned from."""
    with psycopg.connect(superuser_conninfo, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {TEMPLATE}".encode())
        connection.execute(f"CREATE DATABASE {TEMPLATE}".encode())
    there = make_conninfo(superuser_conninfo, dbname=TEMPLATE)
    migrations.ensure_roles(there)
    with psycopg.connect(superuser_conninfo, autocommit=True) as connection:
        for role in (APP_ROLE, OWNER_ROLE):
            # Shadowed variables, assignments of another width and surplus rows are mistakes, not warnings.
            connection.execute(f"ALTER ROLE {role} SET plpgsql.extra_errors = 'all'".encode())
    if app_password:
        with psycopg.connect(superuser_conninfo, autocommit=True) as connection:
            for role in (APP_ROLE, OWNER_ROLE):
                connection.execute(f"ALTER ROLE {role} LOGIN PASSWORD '{app_password}'".encode())
    migrations.upgrade(there)
    function_calls.count_calls(superuser_conninfo)
    yield TEMPLATE
    with psycopg.connect(superuser_conninfo, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {TEMPLATE} WITH (FORCE)".encode())


@contextmanager
def cloned(superuser_conninfo: str, template: str, password: str = "") -> Iterator[TestDatabase]:
    """A fresh copy of the template, dropped afterwards."""
    name = f"palimpsest_test_{secrets.token_hex(6)}"
    with psycopg.connect(superuser_conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
    extra = {"password": password} if password else {}
    try:
        yield TestDatabase(
            name=name,
            superuser=make_conninfo(superuser_conninfo, dbname=name),
            owner=make_conninfo(superuser_conninfo, dbname=name, user=OWNER_ROLE, **extra),
            app=make_conninfo(superuser_conninfo, dbname=name, user=APP_ROLE, **extra),
        )
    finally:
        function_calls.collect_calls(make_conninfo(superuser_conninfo, dbname=name))
        with psycopg.connect(superuser_conninfo, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())


@pytest.fixture(scope="session")
def installation(superuser_conninfo: str, template: str, app_password: str) -> Iterator[SharedInstallation]:
    """A database and its services, which modules use one after the other."""
    shared = SharedInstallation(lambda: cloned(superuser_conninfo, template, app_password))
    yield shared
    shared.close()


@pytest.fixture(scope="module")
def database(installation: SharedInstallation) -> TestDatabase:
    """An empty database for one test module."""
    return installation.database()


@pytest.fixture(scope="session")
def second_installation(superuser_conninfo: str, template: str, app_password: str) -> Iterator[SharedInstallation]:
    """A database that tests use one after the other, beside that of their module."""
    shared = SharedInstallation(lambda: cloned(superuser_conninfo, template, app_password))
    yield shared
    shared.close()


@pytest.fixture
def fresh_database(second_installation: SharedInstallation) -> TestDatabase:
    """An empty database for one test."""
    return second_installation.database()


@pytest.fixture
def empty_database(superuser_conninfo: str) -> Iterator[str]:
    """A database without any schema, as its superuser."""
    name = f"palimpsest_test_{secrets.token_hex(6)}"
    with psycopg.connect(superuser_conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    yield make_conninfo(superuser_conninfo, dbname=name)
    with psycopg.connect(superuser_conninfo, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())


@dataclass
class Tenancy:
    """Makes tenants, projects and keys in a database, by the use cases of the command line."""

    database: TestDatabase
    _connected: tuple[asyncio.Runner, Database] | None = None

    @classmethod
    @contextmanager
    def connected(cls, database: TestDatabase) -> "Iterator[Tenancy]":
        """One that keeps its connections, for modules that make many tenants."""
        with asyncio.Runner() as runner:
            db = open_database(database.settings())
            try:
                yield cls(database, (runner, db))
            finally:
                runner.run(db.close())

    def run(self, work: Callable[[Database], Coroutine[Any, Any, T]]) -> T:
        """Run work on the database."""
        if self._connected is None:
            return administration.with_database(self.database.settings(), work)
        runner, db = self._connected
        return runner.run(work(db))

    def tenant(self, tenant_id: str, *projects: str) -> str:
        async def work(db: Any) -> None:
            await administration.create_tenant(db, TenantCreate(tenant_id=tenant_id))
            for project in projects or ("default",):
                await administration.create_project(db, ProjectCreate(tenant_id=tenant_id, project_id=project))

        self.run(work)
        return tenant_id

    def key(self, tenant_id: str, **fields: Any) -> str:
        """A new key, whole."""
        return self.issue(tenant_id, **fields)["key"]

    def issue(self, tenant_id: str, **fields: Any) -> dict[str, Any]:
        """A new key with all that is said of it."""
        if fields.get("kind", "agent") == "agent":
            # Agents of the tests also decide about predicates, which others need a scope for.
            scopes = [*AGENT_SCOPES, "predicates:admin"]
            fields = {"agent_id": "robin", "project_id": "default", "scopes": scopes, **fields}
        data = KeyCreate(tenant_id=tenant_id, **fields)
        return msgspec.to_builtins(self.run(lambda db: administration.create_key(db, data)))


@pytest.fixture(scope="module")
def tenancy(database: TestDatabase) -> Iterator[Tenancy]:
    """Tenants and keys in this module's database."""
    with Tenancy.connected(database) as connected:
        yield connected


PLATFORM_KEY = "platform-key-for-the-tests-0123456789"


@pytest.fixture(scope="module")
def service(database: TestDatabase, installation: SharedInstallation) -> RunningService:
    """The real service as its own process on this module's database."""
    return installation.service(PLATFORM_KEY=PLATFORM_KEY)


@pytest.fixture
def client(service: RunningService) -> Iterator[httpx.Client]:
    """An HTTP client without a key."""
    with httpx.Client(base_url=service.url, timeout=30, verify=False) as made:
        yield made


@pytest.fixture
def as_key(service: RunningService) -> Iterator[Callable[..., httpx.Client]]:
    """Clients that send a key, and perhaps a project."""
    made: list[httpx.Client] = []

    def build(key: str, project: str | None = None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {key}"} | ({"X-Project-Id": project} if project else {})
        client = httpx.Client(base_url=service.url, timeout=30, headers=headers, verify=False)
        made.append(client)
        return client

    yield build
    for client in made:
        client.close()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Asynchronous tests run on asyncio, as the service does."""
    return "asyncio"
