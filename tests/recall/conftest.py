"""What the tests of recall share: worlds of their own, one service for all of a module, and vectors chosen by hand."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from tests.conftest import Tenancy
from tests.facts.conftest import UNLIMITED, superuser  # noqa: F401
from tests.history.conftest import worker  # noqa: F401
from tests.recall.shared import Superuser, Vectors, World, asked
from tests.service import RunningService


@pytest.fixture(scope="session")
def vectors() -> Iterator[Vectors]:
    """Vectors at a chosen angle from what the model makes of a query."""
    made = Vectors()
    yield made
    made.close()


@pytest.fixture(scope="module")
def new_world(
    tenancy: Tenancy,
    service: RunningService,
    superuser: Superuser,  # noqa: F811
    vectors: Vectors,
) -> Iterator[Callable[..., World]]:
    """Tenants that nobody else writes into."""
    warm: list[bool] = []
    with ExitStack() as stack:

        def build(*projects: str) -> World:
            def client(key: str, project: str = "default") -> httpx.Client:
                headers = {"Authorization": f"Bearer {key}", "X-Project-Id": project}
                return stack.enter_context(httpx.Client(base_url=service.url, timeout=30, headers=headers))

            world = World.make(tenancy, client, superuser, vectors, projects=projects, limits=UNLIMITED)
            # The model is loaded at the first use, for which nobody waits long.
            while not warm and asked(world.robin, query="Is anybody there?")["meta"]["degraded"]:
                time.sleep(0.1)
            warm.append(True)
            return world

        yield build


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    """A tenant for one test."""
    return new_world()
