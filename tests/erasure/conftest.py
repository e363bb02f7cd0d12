"""Fixtures of the erasure tests: the tenants and clients of the tests of facts, and a worker beside the service."""

from collections.abc import Iterator

import pytest

from tests.commands import start_worker
from tests.conftest import TestDatabase
from tests.facts.conftest import (  # noqa: F401
    admin,
    elsewhere,
    keys,
    rival,
    robin,
    superuser,
    wren,
)
from tests.service import stop


@pytest.fixture(scope="module")
def worker(database: TestDatabase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A real worker on this module's database."""
    log = tmp_path_factory.mktemp("worker") / "log"
    process = start_worker(log=log, DATABASE_URL=database.url("app"), POLL_SECONDS="0.1")
    yield
    stop(process)
