"""Fixtures of objects: tenants, clients, and short calls."""

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import psycopg
import pytest

from app.tenancy.schemas import RateLimits
from tests.conftest import Tenancy, TestDatabase
from tests.service import RunningService


class Graph:
    """A tenant with two projects, and calls to it."""

    def __init__(self, tenant: str, clients: dict[str, httpx.Client]) -> None:
        self.tenant = tenant
        self.agent = clients["agent"]
        self.admin = clients["admin"]
        self.other = clients["other"]
        self.reader = clients["reader"]
        self.bound_admin = clients["bound_admin"]

    def make(self, type: str = "Thing", *, client: httpx.Client | None = None, **fields: Any) -> dict[str, Any]:
        """Create an object."""
        answer = (client or self.agent).post("/v1/graph/objects", json={"type": type, **fields})
        assert answer.status_code == 201, answer.text
        return answer.json()["object"]

    def link(self, src: dict[str, Any], dst: dict[str, Any], type: str = "relates_to", **fields: Any) -> dict[str, Any]:
        """Create a relationship."""
        body = {"type": type, "src_id": src["canonical_id"], "dst_id": dst["canonical_id"], **fields}
        answer = self.agent.post("/v1/graph/relationships", json=body)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()["relationship"]

    def patch(self, thing: dict[str, Any], headers: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
        """Patch an object."""
        answer = self.agent.patch(f"/v1/graph/objects/{thing['canonical_id']}", json=fields, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()["object"]

    def register(self, kind: str, type: str, **fields: Any) -> dict[str, Any]:
        """Register a type or its next version."""
        answer = self.admin.post(f"/v1/graph/schemas/{kind}s", json={"type": type, **fields})
        assert answer.status_code in (200, 201), answer.text
        return answer.json()["schema"]


@pytest.fixture
def build_graph(tenancy: Tenancy, service: RunningService) -> Iterator[Callable[[], Graph]]:
    """Return a function that creates a tenant with its keys."""
    opened: list[httpx.Client] = []

    def client(key: str, project: str) -> httpx.Client:
        made = httpx.Client(
            base_url=service.url,
            headers={"authorization": f"Bearer {key}", "x-project-id": project},
            timeout=30,
            verify=False,
        )
        opened.append(made)
        return made

    def build() -> Graph:
        tenant = f"t{secrets.token_hex(6)}"
        tenancy.tenant(tenant, "one", "two")
        scopes = ["graph:read", "graph:write", "facts:read", "facts:write"]
        limits = RateLimits(read=0, write=0, admin=0)
        agent = tenancy.key(tenant, agent_id="robin", project_id="one", scopes=scopes, rate_limits=limits)
        reader = tenancy.key(tenant, agent_id="wren", project_id="one", scopes=["graph:read"], rate_limits=limits)
        admin = tenancy.key(tenant, kind="admin", rate_limits=limits)
        bound = tenancy.key(tenant, kind="admin", project_id="one", rate_limits=limits)
        return Graph(
            tenant,
            {
                "agent": client(agent, "one"),
                "admin": client(admin, "one"),
                "other": client(admin, "two"),
                "reader": client(reader, "one"),
                "bound_admin": client(bound, "one"),
            },
        )

    yield build
    for made in opened:
        made.close()


@pytest.fixture
def graph(build_graph: Callable[[], Graph]) -> Graph:
    return build_graph()


@pytest.fixture
def rival(build_graph: Callable[[], Graph]) -> Graph:
    return build_graph()


@pytest.fixture
def superuser(database: TestDatabase) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        yield connection


def code(answer: httpx.Response) -> str:
    """Return the code of an error."""
    return answer.json()["error"]["code"]
