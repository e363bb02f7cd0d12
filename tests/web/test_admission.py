"""Fairness between tenants: what one tenant waits for does not keep another one waiting."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import psycopg
import pytest

from tests.conftest import Tenancy, TestDatabase
from tests.service import RunningService, start_service

SHARE = 2


@pytest.fixture(scope="module")
def service(database: TestDatabase) -> Iterator[RunningService]:
    """A service that runs two requests of a tenant at once, and lets the others wait for a second."""
    variables = {"TENANT_CONCURRENCY": str(SHARE), "REQUEST_WAIT_SECONDS": "1", "DATABASE_POOL_SIZE": "4"}
    with start_service(database.url("app"), **variables) as running:
        yield running


def fact(subject: str, value: str = "tea") -> dict[str, Any]:
    return {"subject": subject, "predicate": "likes", "object": {"value": value}}


@contextmanager
def locked_subjects(database: TestDatabase, tenant: str) -> Iterator[psycopg.Connection[Any]]:
    """Holds the timelines of all subjects of a tenant, so that writes to them wait."""
    with psycopg.connect(database.superuser) as connection:
        connection.execute("SELECT FROM graph_entities WHERE tenant_id = %s FOR UPDATE", (tenant,))
        yield connection
        connection.rollback()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def waiting_for_locks(database: TestDatabase) -> int:
    with psycopg.connect(database.superuser) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ).fetchone()
    assert row is not None
    return row[0]


def test_a_tenant_at_its_share_waits_and_others_are_served(
    database: TestDatabase, tenancy: Tenancy, as_key: Callable[..., httpx.Client]
) -> None:
    loud = as_key(tenancy.key(tenancy.tenant("loud")))
    quiet = as_key(tenancy.key(tenancy.tenant("quiet")))
    for number in range(SHARE):
        assert loud.post("/v1/facts", json=fact(f"Subject {number}")).status_code == 201
    writes: list[Future[httpx.Response]] = []
    with ThreadPoolExecutor() as pool:
        with locked_subjects(database, "loud"):
            writes = [pool.submit(loud.post, "/v1/facts", json=fact(f"Subject {n}", "milk")) for n in range(SHARE)]
            wait_for(lambda: waiting_for_locks(database) == SHARE)
            refused = loud.get("/v1/notes")
            assert refused.status_code == 429
            assert refused.json()["error"]["code"] == "tenant_busy"
            assert refused.headers["retry-after"] == "1"
            assert quiet.get("/v1/notes").status_code == 200
            assert quiet.post("/v1/facts", json=fact("Robin")).status_code == 201
        assert {write.result().status_code for write in writes} == {201}
    assert loud.get("/v1/notes").status_code == 200


def test_writers_of_one_subject_wait_without_a_connection(
    database: TestDatabase, tenancy: Tenancy, as_key: Callable[..., httpx.Client]
) -> None:
    busy = as_key(tenancy.key(tenancy.tenant("busy")))
    assert busy.post("/v1/facts", json=fact("Hub")).status_code == 201
    keys = [{"Idempotency-Key": "write-1"}, {}, {"Idempotency-Key": "write-2"}, {}, {}, {}]
    with ThreadPoolExecutor() as pool:
        with locked_subjects(database, "busy"):
            writes = [
                pool.submit(busy.post, "/v1/facts", json=fact("Hub", f"tea {number}"), headers=headers)
                for number, headers in enumerate(keys)
            ]
            wait_for(lambda: waiting_for_locks(database) == 1)
            # The tenant's own other requests are served, too.
            wait_for(lambda: busy.get("/v1/notes").status_code == 200)
            wait_for(lambda: busy.post("/v1/facts", json=fact("Another")).status_code < 300)
            assert waiting_for_locks(database) == 1
        assert {write.result().status_code for write in writes} == {201}


def test_a_large_batch_counts_as_several_requests(
    database: TestDatabase, tenancy: Tenancy, as_key: Callable[..., httpx.Client]
) -> None:
    loud = as_key(tenancy.key(tenancy.tenant("bulk")))
    assert loud.post("/v1/facts", json=fact("Subject")).status_code == 201
    batch = {"facts": [fact("Subject", f"tea {number}") for number in range(150)]}
    with ThreadPoolExecutor() as pool:
        with locked_subjects(database, "bulk"):
            write = pool.submit(loud.post, "/v1/facts/batch", json=batch)
            wait_for(lambda: waiting_for_locks(database) == 1)
            assert loud.get("/v1/notes").json()["error"]["code"] == "tenant_busy"
        assert write.result().status_code == 200


def test_a_body_that_does_not_arrive_takes_no_place(
    tenancy: Tenancy, service: RunningService, as_key: Callable[..., httpx.Client]
) -> None:
    key = tenancy.key(tenancy.tenant("slow"))
    arrived, done = threading.Semaphore(0), threading.Event()

    def slow_body() -> Iterator[bytes]:
        yield b'{"content": '
        arrived.release()
        done.wait(60)
        yield b'"late"}'

    def send() -> int:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        return httpx.post(f"{service.url}/v1/notes", content=slow_body(), headers=headers, timeout=60).status_code

    with ThreadPoolExecutor() as pool:
        sent = [pool.submit(send) for _ in range(SHARE + 1)]
        for _ in sent:
            assert arrived.acquire(timeout=60)
        assert as_key(key).get("/v1/notes").status_code == 200
        done.set()
        assert sorted(future.result() for future in sent) == [200, 200, 201]
