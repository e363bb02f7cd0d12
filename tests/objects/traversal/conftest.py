"""Fixtures of traversal: two tenants, clients of their agents, and graphs written directly into their tables."""

from collections.abc import Callable

import httpx
import pytest

from app.tenancy.schemas import RateLimits
from tests.conftest import Tenancy
from tests.facts.conftest import superuser  # noqa: F401
from tests.objects.traversal.shared import Graph, Superuser

UNLIMITED = RateLimits(read=0, write=0, admin=0, expand=0)


@pytest.fixture(scope="module")
def keys(tenancy: Tenancy) -> dict[str, str]:
    tenancy.tenant("acme", "default", "other")
    tenancy.tenant("rival")
    return {
        "robin": tenancy.key("acme", agent_id="robin", rate_limits=UNLIMITED),
        "elsewhere": tenancy.key("acme", agent_id="robin", project_id="other", rate_limits=UNLIMITED),
        "rival": tenancy.key("rival", agent_id="robin", rate_limits=UNLIMITED),
        "noter": tenancy.key("acme", agent_id="wren", scopes=["notes:read"], rate_limits=UNLIMITED),
    }


@pytest.fixture
def robin(keys: dict[str, str], as_key: Callable[..., httpx.Client]) -> httpx.Client:
    return as_key(keys["robin"])


@pytest.fixture
def elsewhere(keys: dict[str, str], as_key: Callable[..., httpx.Client]) -> httpx.Client:
    """An agent of another project."""
    return as_key(keys["elsewhere"])


@pytest.fixture
def rival(keys: dict[str, str], as_key: Callable[..., httpx.Client]) -> httpx.Client:
    """An agent of another tenant."""
    return as_key(keys["rival"])


@pytest.fixture
def noter(keys: dict[str, str], as_key: Callable[..., httpx.Client]) -> httpx.Client:
    """An agent that may not read the graph."""
    return as_key(keys["noter"])


@pytest.fixture
def graph(robin: httpx.Client, superuser: Superuser) -> Graph:  # noqa: F811
    """A graph for one test."""
    return Graph(superuser, robin)
