"""A service, a worker and a scripted model for the pipeline; every test has a tenant and a model of its own."""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.rows import dict_row

from tests.commands import ForkedProcess, killed_worker
from tests.conftest import Tenancy, TestDatabase
from tests.extraction.model_server import ModelServer, Script, model_server
from tests.service import RunningService
from tests.shared_installation import SharedInstallation

ENDED = {"completed", "failed", "dead", "cancelled"}


@contextmanager
def worker_process(database: TestDatabase, models: ModelServer, **variables: str) -> Iterator[ForkedProcess]:
    """A worker that asks the scripted models; killed at the end."""
    settings = {
        "DATABASE_URL": database.url("app"),
        "OLLAMA_URL": models.url,
        "OPENAI_BASE_URL": f"{models.url}/v1",
        "LEASE_SECONDS": "2",
        "POLL_SECONDS": "0.2",
        "LOG_LEVEL": "error",
        **variables,
    }
    with killed_worker(**settings) as process:
        yield process


@pytest.fixture(scope="module")
def models() -> Iterator[ModelServer]:
    with model_server() as server:
        yield server


@pytest.fixture(scope="module")
def running(database: TestDatabase, installation: SharedInstallation) -> RunningService:
    return installation.service(LOG_LEVEL="warning")


@pytest.fixture(scope="module")
def working(database: TestDatabase, models: ModelServer, running: RunningService) -> Iterator[RunningService]:
    """The service with a worker beside it."""
    with worker_process(database, models):
        yield running


@dataclass
class Project:
    """A tenant's project, its keys and the model its notes are read by."""

    tenant: str
    model: str
    agent: httpx.Client
    admin: httpx.Client
    tenancy: Tenancy
    models: ModelServer

    def script(self, script: Script) -> None:
        self.models.scripts[self.model] = script

    def set(self, **settings: Any) -> dict[str, Any]:
        answer = self.admin.put("/v1/projects/default/settings", json=settings)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def say(self, content: str, *, wait: float = 20, **fields: Any) -> dict[str, Any]:
        """Stores a note and waits until it is extracted."""
        params = {"wait": "extraction", "wait_seconds": wait}
        answer = self.agent.post("/v1/notes", params=params, json={"content": content, **fields})
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    def job(self, job_id: str, *, seconds: float = 90) -> dict[str, Any]:
        """A job at its end."""
        deadline = time.monotonic() + seconds
        while True:
            job = self.agent.get(f"/v1/jobs/{job_id}").json()
            if job["status"] in ENDED:
                return job
            assert time.monotonic() < deadline, job
            time.sleep(0.05)

    def notes(self, **filters: Any) -> list[dict[str, Any]]:
        return self.agent.get("/v1/notes", params={"limit": 200, **filters}).json()["notes"]

    def derived(self) -> list[dict[str, Any]]:
        return [note for note in self.notes() if note["derived_from"] is not None]

    def proposals(self, note_id: str) -> list[dict[str, Any]]:
        events = self.agent.get(f"/v1/notes/{note_id}/history").json()["events"]
        return [event["proposal"] for event in events if event["proposal"] is not None]

    def rows(self, query: str, *params: Any) -> list[dict[str, Any]]:
        """What the database has, past all policies."""
        with psycopg.Connection[dict[str, Any]].connect(
            self.tenancy.database.superuser, row_factory=dict_row
        ) as connection:
            return connection.execute(query.encode(), params).fetchall()

    def asked(self) -> list[Any]:
        return self.models.of(self.model)


@pytest.fixture
def make_project(
    tenancy: Tenancy, models: ModelServer, working: RunningService, as_client: Callable[..., httpx.Client]
) -> Callable[..., Project]:
    """Makes projects whose pipeline is on, unless the settings say otherwise."""

    def make(**settings: Any) -> Project:
        tenant = f"t{secrets.token_hex(5)}"
        tenancy.tenant(tenant)
        project = Project(
            tenant=tenant,
            model=f"m{secrets.token_hex(5)}",
            agent=as_client(tenancy.key(tenant, agent_id="robin", rate_limits={"write": 0, "read": 0})),
            admin=as_client(tenancy.key(tenant, kind="admin", agent_id="boss"), project="default"),
            tenancy=tenancy,
            models=models,
        )
        project.set(**{"enabled": True, "extraction_model": project.model, **settings})
        return project

    return make


@pytest.fixture
def project(make_project: Callable[..., Project]) -> Project:
    """One whose pipeline writes what is new."""
    return make_project()


@pytest.fixture
def as_client(running: RunningService) -> Iterator[Callable[..., httpx.Client]]:
    clients: list[httpx.Client] = []

    def build(key: str, project: str | None = None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {key}"} | ({"X-Project-Id": project} if project else {})
        client = httpx.Client(base_url=running.url, headers=headers, timeout=90, verify=False)
        clients.append(client)
        return client

    yield build
    for client in clients:
        client.close()
