"""Fixtures of the tests of facts: two tenants, clients of their agents, and a superuser's connection."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.rows import dict_row

from app.tenancy.schemas import RateLimits
from tests.conftest import Tenancy, TestDatabase

UNLIMITED = RateLimits(read=0, write=0, admin=0)


@pytest.fixture(scope="module")
def keys(tenancy: Tenancy) -> dict[str, str]:
    tenancy.tenant("acme", "default", "other")
    tenancy.tenant("rival")
    return {
        "robin": tenancy.key("acme", agent_id="robin", rate_limits=UNLIMITED),
        "wren": tenancy.key("acme", agent_id="wren", rate_limits=UNLIMITED),
        "elsewhere": tenancy.key("acme", agent_id="robin", project_id="other", rate_limits=UNLIMITED),
        "admin": tenancy.key("acme", kind="admin", rate_limits=UNLIMITED),
        "rival": tenancy.key("rival", agent_id="robin", rate_limits=UNLIMITED),
    }


@pytest.fixture
def robin(keys: dict[str, str], as_key: Callable[..., httpx.Client]) -> httpx.Client:
    return as_key(keys["robin"])


@pytest.fixture
def wren(keys: dict[str, str], as_key: Callable[..., httpx.Client]) -> httpx.Client:
    """Another agent of the same project."""
    return as_key(keys["wren"])


@pytest.fixture
def elsewhere(keys: dict[str, str], as_key: Callable[..., httpx.Client]) -> httpx.Client:
    """An agent of another project."""
    return as_key(keys["elsewhere"])


@pytest.fixture
def admin(keys: dict[str, str], as_key: Callable[..., httpx.Client]) -> httpx.Client:
    return as_key(keys["admin"], "default")


@pytest.fixture
def rival(keys: dict[str, str], as_key: Callable[..., httpx.Client]) -> httpx.Client:
    """An agent of another tenant."""
    return as_key(keys["rival"])


@pytest.fixture(scope="module")
def superuser(database: TestDatabase) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    kind = psycopg.Connection[dict[str, Any]]
    with kind.connect(database.superuser, autocommit=True, row_factory=dict_row) as connection:
        yield connection
