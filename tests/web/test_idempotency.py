"""Idempotency-Key: the first answer again, one effect however many try, and nothing readable kept of a secret."""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests.conftest import Tenancy, TestDatabase
from tests.service import RunningService

Clients = Callable[..., httpx.Client]


@pytest.fixture(scope="module", autouse=True)
def tenants(tenancy: Tenancy) -> None:
    tenancy.tenant("acme")
    tenancy.tenant("rival")


@pytest.fixture(scope="module")
def agent(tenancy: Tenancy, tenants: None) -> str:
    return tenancy.key("acme")


def slug() -> str:
    return f"garden-{uuid4().hex[:12]}"


def gardens(database: TestDatabase) -> int:
    with psycopg.connect(database.superuser) as connection:
        found = connection.execute("SELECT count(*) FROM gardens").fetchone()
        assert found is not None
        return found[0]


def create(client: httpx.Client, key: str | None, body: Mapping[str, object]) -> httpx.Response:
    return client.post("/v1/gardens", json=body, headers={"Idempotency-Key": key} if key else {})


def test_the_same_key_and_body_give_the_first_answer_again(database: TestDatabase, agent: str, as_key: Clients) -> None:
    client, body, before = as_key(agent), {"slug": slug()}, gardens(database)
    first = create(client, "one", body)
    second = create(client, "one", body)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.content == second.content
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    assert gardens(database) == before + 1


def test_spacing_and_order_of_the_body_do_not_matter(agent: str, as_key: Clients) -> None:
    name = slug()
    headers = {"Idempotency-Key": "spacing"}
    client = as_key(agent)
    first = client.post("/v1/gardens", content=f'{{"slug":"{name}","name":"x"}}', headers=headers)
    second = client.post("/v1/gardens", content=f'{{ "name": "x",  "slug": "{name}" }}', headers=headers)
    assert first.content == second.content


def test_the_same_key_with_another_body_is_a_conflict(database: TestDatabase, agent: str, as_key: Clients) -> None:
    client = as_key(agent)
    create(client, "two", {"slug": slug()})
    before = gardens(database)
    refused = create(client, "two", {"slug": slug()})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "idempotency_mismatch")
    assert gardens(database) == before


def test_keys_are_apart_by_caller_and_path(tenancy: Tenancy, agent: str, as_key: Clients) -> None:
    assert create(as_key(agent), "three", {"slug": slug()}).status_code == 201
    assert create(as_key(tenancy.key("acme", agent_id="wren")), "three", {"slug": slug()}).status_code == 201
    assert create(as_key(tenancy.key("rival")), "three", {"slug": slug()}).status_code == 201
    admin = as_key(tenancy.key("acme", kind="admin"))
    answer = admin.post("/v1/admin/projects", json={"project_id": "p3"}, headers={"Idempotency-Key": "three"})
    assert answer.status_code == 201


def test_a_refusal_is_stored_too_and_a_malformed_body_is_not(agent: str, as_key: Clients) -> None:
    client, name = as_key(agent), slug()
    create(client, None, {"slug": name})
    first, second = create(client, "four", {"slug": name}), create(client, "four", {"slug": name})
    assert (first.status_code, second.status_code) == (409, 409)
    assert second.json()["error"]["code"] == "garden_exists"
    assert second.headers["idempotency-replayed"] == "true"
    assert second.json()["error"]["request_id"] != first.json()["error"]["request_id"]
    assert create(client, "five", {"slug": "Not A Slug"}).status_code == 400
    assert create(client, "five", {"slug": slug()}).status_code == 201


@pytest.mark.parametrize(("content", "status"), [("   ", 400), ("long " * 20_000, 413)])
def test_a_body_that_the_use_case_refuses_can_be_corrected_under_the_same_key(
    agent: str, as_key: Clients, content: str, status: int
) -> None:
    client, headers = as_key(agent), {"Idempotency-Key": f"corrected-{status}"}
    assert client.post("/v1/notes", json={"content": content}, headers=headers).status_code == status
    assert client.post("/v1/notes", json={"content": f"corrected {status}"}, headers=headers).status_code == 201


def test_of_many_at_once_one_has_an_effect(database: TestDatabase, agent: str, service: RunningService) -> None:
    body, before = {"slug": slug()}, gardens(database)
    start = threading.Barrier(16)

    def send(_: int) -> tuple[int, bytes]:
        with httpx.Client(base_url=service.url, timeout=60, headers={"Authorization": f"Bearer {agent}"}) as client:
            start.wait()
            answer = create(client, "many", body)
            return answer.status_code, answer.content

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(send, range(16)))
    assert {status for status, _ in answers} == {201}
    assert len({content for _, content in answers}) == 1
    assert gardens(database) == before + 1


def test_one_that_is_still_under_way_is_waited_for_and_then_refused(
    database: TestDatabase, agent: str, as_key: Clients
) -> None:
    client, name = as_key(agent), slug()
    first = create(client, "held", {"slug": name})
    assert first.status_code == 201
    with psycopg.connect(database.superuser) as holder:
        # As if the first request were still open: its row deleted and written again, not committed.
        holder.execute("DELETE FROM idempotency_keys WHERE idempotency_key = 'held'")
        started = time.monotonic()
        refused = create(client, "held", {"slug": name})
        waited = time.monotonic() - started
        holder.rollback()
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "idempotency_in_progress")
    assert 8 < waited < 20
    assert create(client, "held", {"slug": name}).content == first.content


def test_a_key_can_be_reused_after_a_day(database: TestDatabase, agent: str, as_key: Clients) -> None:
    client = as_key(agent)
    create(client, "old", {"slug": slug()})
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        kept = connection.execute(
            "SELECT expires_at - created_at FROM idempotency_keys WHERE idempotency_key = 'old'"
        ).fetchone()
        assert kept is not None
        assert kept[0].total_seconds() == 86400
        connection.execute("UPDATE idempotency_keys SET expires_at = now() WHERE idempotency_key = 'old'")
    assert create(client, "old", {"slug": slug()}).status_code == 201


def test_an_issued_key_is_given_again_but_kept_unreadable(
    database: TestDatabase, tenancy: Tenancy, as_key: Clients
) -> None:
    admin = as_key(tenancy.key("acme", kind="admin"))
    body = {"kind": "agent", "agent_id": "robin", "project_id": "default"}
    first = admin.post("/v1/admin/keys", json=body, headers={"Idempotency-Key": "issue"})
    second = admin.post("/v1/admin/keys", json=body, headers={"Idempotency-Key": "issue"})
    assert first.json()["key"] == second.json()["key"]
    secret = first.json()["key"].rpartition("_")[2]
    with psycopg.connect(database.superuser) as connection:
        kept = connection.execute("SELECT body FROM idempotency_keys WHERE idempotency_key = 'issue'").fetchone()
    assert kept is not None
    assert secret.encode() not in bytes(kept[0])
    assert b"pk_" not in bytes(kept[0])
