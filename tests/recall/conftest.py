"""What the tests of recall share: one service for most of them, worlds of their own in it, vectors chosen by hand."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.rows import dict_row

from tests.conftest import Tenancy, TestDatabase, cloned
from tests.erasure.conftest import worker  # noqa: F401
from tests.facts.conftest import UNLIMITED, superuser  # noqa: F401
from tests.recall.shared import Vectors, World, asked
from tests.service import RunningService, start_service


@pytest.fixture(scope="session")
def vectors() -> Iterator[Vectors]:
    """Vectors at a chosen angle from what the model makes of a query."""
    made = Vectors()
    yield made
    made.close()


@contextmanager
def worlds(database: TestDatabase, service: RunningService, vectors: Vectors) -> Iterator[Callable[..., World]]:
    """Makes tenants that nobody else writes into."""
    kind = psycopg.Connection[dict[str, Any]]
    with ExitStack() as stack:
        tenancy = stack.enter_context(Tenancy.connected(database))
        connection = stack.enter_context(kind.connect(database.superuser, autocommit=True, row_factory=dict_row))
        warm: list[bool] = []

        def client(key: str, project: str = "default") -> httpx.Client:
            headers = {"Authorization": f"Bearer {key}", "X-Project-Id": project}
            return stack.enter_context(httpx.Client(base_url=service.url, timeout=30, headers=headers, verify=False))

        def build(*projects: str) -> World:
            world = World.make(tenancy, client, connection, vectors, projects=projects, limits=UNLIMITED)
            # The model is loaded at its first use, for which nobody waits long.
            while not warm and asked(world.robin, query="Is anybody there?")["meta"]["degraded"]:
                time.sleep(0.1)
            warm.append(True)
            return world

        yield build


@pytest.fixture(scope="session")
def new_world(
    superuser_conninfo: str, template: str, app_password: str, vectors: Vectors
) -> Iterator[Callable[..., World]]:
    """Worlds in a service that most tests of recall share; no worker is beside it."""
    with (
        cloned(superuser_conninfo, template, app_password) as database,
        start_service(database.url("app")) as service,
        worlds(database, service, vectors) as build,
    ):
        yield build


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    """A tenant for one test."""
    return new_world()
