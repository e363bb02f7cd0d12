"""What the tests of documents share: a small web, a service that may fetch from it, and a worker beside it."""

import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests import commands
from tests.commands import ForkedProcess
from tests.conftest import PLATFORM_KEY, TestDatabase
from tests.documents.web import Web, serve_web
from tests.facts.conftest import admin, elsewhere, keys, rival, robin, superuser, wren  # noqa: F401
from tests.service import RunningService, stop
from tests.shared_installation import SharedInstallation

INTRANET = {"DOCUMENT_FETCH_NETWORKS": "127.0.0.2/32", "DOCUMENT_FETCH_SECONDS": "8"}


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    with serve_web() as server:
        yield server


@pytest.fixture(scope="module")
def service(database: TestDatabase, installation: SharedInstallation) -> RunningService:
    return installation.service(PLATFORM_KEY=PLATFORM_KEY, **INTRANET)


@pytest.fixture(scope="module")
def start_worker(
    database: TestDatabase, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., ForkedProcess]]:
    """Starts workers; those that still run at the end are stopped."""
    started: list[ForkedProcess] = []

    def start(**variables: str) -> ForkedProcess:
        log = tmp_path_factory.mktemp("worker") / "log"
        settings = {"DATABASE_URL": database.url("app"), "POLL_SECONDS": "0.1", **INTRANET, **variables}
        started.append(commands.start_worker(log=log, **settings))
        return started[-1]

    yield start
    for process in started:
        stop(process)


@pytest.fixture(scope="module")
def worker(start_worker: Callable[..., ForkedProcess]) -> None:
    """A real worker on this module's database."""
    start_worker()


def words(count: int, *, mark: str | None = None) -> str:
    """A text of that many words, none of which stands twice."""
    mark = mark or uuid4().hex[:6]
    return " ".join(f"word{number}x{mark}" for number in range(count))


def post(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    """A document that is taken in."""
    answer = client.post("/v1/documents", json=fields)
    assert answer.status_code == 201, answer.text
    return answer.json()["document"]


def read(client: httpx.Client, document: dict[str, Any]) -> dict[str, Any]:
    answer = client.get(f"/v1/documents/{document['document_id']}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def until_ended(client: httpx.Client, document: dict[str, Any], *, seconds: float = 120) -> dict[str, Any]:
    """The document once it is done or has failed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = read(client, document)
        if found["status"] in ("done", "failed"):
            return found
        time.sleep(0.05)
    raise AssertionError(f"after {seconds} s: {read(client, document)}")


def ingested(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    """A document that is done."""
    found = until_ended(client, post(client, **fields))
    assert found["status"] == "done", found
    return found


def notes_of(client: httpx.Client, document: dict[str, Any]) -> list[dict[str, Any]]:
    """Its notes, page by page."""
    found: list[dict[str, Any]] = []
    params: dict[str, Any] = {"limit": 200}
    while True:
        answer = client.get(f"/v1/documents/{document['document_id']}/notes", params=params)
        assert answer.status_code == 200, answer.text
        found += answer.json()["notes"]
        if answer.json()["next_cursor"] is None:
            return found
        params["cursor"] = answer.json()["next_cursor"]
