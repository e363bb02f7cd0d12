"""Totals of lists, on request: exact up to 10,000, then a lower bound."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import psycopg
import pytest

from app.db import counts
from app.paging import Total
from tests.conftest import Tenancy, TestDatabase


@pytest.fixture(scope="module")
def key(tenancy: Tenancy) -> str:
    return tenancy.key(tenancy.tenant("acme"))


@pytest.fixture
def robin(key: str, as_key: Callable[..., httpx.Client]) -> httpx.Client:
    return as_key(key)


@pytest.fixture(scope="module")
def superuser(database: TestDatabase) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize("name", ["notes", "facts", "entities", "conflicts"])
def test_a_total_counts_all_pages_and_keeps_to_the_filters(robin: httpx.Client, name: str) -> None:
    for number in range(5):
        robin.post("/v1/notes", json={"content": f"{name} {number}", "tags": ["odd"] * (number % 2)})
        fact = {"subject": f"{name} subject", "predicate": f"born {name}", "object": {"value": f"place {number}"}}
        robin.post("/v1/facts", json=fact).raise_for_status()
    path = f"/v1/{name}"
    assert "total" not in robin.get(path).json()
    seen, cursor = 0, None
    totals: list[dict[str, Any]] = []
    while True:
        params = {"limit": 3, "include_total": "true", **({"cursor": cursor} if cursor else {})}
        page = robin.get(path, params=params).json()
        seen, cursor = seen + len(page[name]), page["next_cursor"]
        totals.append(page["total"])
        if cursor is None:
            break
    assert totals == [{"count": seen, "exact": True}] * len(totals)
    assert len(totals) > 1 or name == "entities"
    narrow = {
        "notes": {"tag": "odd"},
        "facts": {"entity": f"{name} subject", "include_contradicted": "false"},
        "entities": {"name": f"{name} subject"},
        "conflicts": {"entity": "nobody"},
    }[name]
    found = robin.get(path, params={**narrow, "include_total": "true"}).json()
    assert found["total"] == {"count": len(found[name]), "exact": True}
    assert found["total"]["count"] < seen


def test_totals_of_a_past_time(robin: httpx.Client) -> None:
    first = robin.post("/v1/notes", json={"content": "the first", "thread_id": "past"}).json()["note"]
    robin.post("/v1/notes", json={"content": "the second", "thread_id": "past"}).raise_for_status()
    asked = {"thread_id": "past", "include_total": "true"}
    assert robin.get("/v1/notes", params=asked).json()["total"]["count"] == 2
    then = robin.get("/v1/notes", params={**asked, "as_of": first["created_at"]}).json()
    assert then["total"] == {"count": 1, "exact": True}


def test_more_than_ten_thousand_are_a_lower_bound(robin: httpx.Client, superuser: psycopg.Connection[Any]) -> None:
    robin.post("/v1/notes", json={"content": "many", "thread_id": "many"}).raise_for_status()
    superuser.execute("""
        INSERT INTO memory_notes (tenant_id, note_id, project_id, agent_id, scope, owner_key, type, content,
            content_hash, tags, pinned, occurred_at, thread_id, position, created_at, updated_at)
        SELECT n.tenant_id, gen_random_uuid(), n.project_id, n.agent_id, n.scope, n.owner_key, n.type, n.content,
               n.content_hash, n.tags, false, n.occurred_at, n.thread_id, i, n.created_at, n.updated_at
        FROM memory_notes n, generate_series(1, 10000) i WHERE n.thread_id = 'many'""")
    asked = {"thread_id": "many", "limit": 1, "include_total": "true"}
    assert robin.get("/v1/notes", params=asked).json()["total"] == {"count": 10_000, "exact": False}
    superuser.execute("DELETE FROM memory_notes WHERE thread_id = 'many' AND position = 1")
    assert robin.get("/v1/notes", params=asked).json()["total"] == {"count": 10_000, "exact": True}


def test_the_bound() -> None:
    assert counts.MAX_COUNTED == 10_000
    assert Total.of([{"counted": 10_001}]) == Total(count=10_000, exact=False)
