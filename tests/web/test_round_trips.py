"""Authentication, scope and one query take at most two round trips, counted on the wire; the hot path takes one."""

from collections.abc import Iterator

import httpx
import pytest

from tests.conftest import Tenancy, TestDatabase, as_url
from tests.pooling_proxy import PoolingProxy
from tests.service import start_service


@pytest.fixture(scope="module")
def proxy(database: TestDatabase) -> Iterator[PoolingProxy]:
    made = PoolingProxy(database.app, server_connections=8)
    made.start_in_thread()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def pooled(proxy: PoolingProxy) -> Iterator[str]:
    """The service behind a pooler in transaction mode."""
    with start_service(as_url(proxy.conninfo), PREPARED_STATEMENTS="off") as running:
        yield running.url


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("/v1/jobs/018f0000-0000-7000-8000-000000000000", 1),
        ("/v1/whoami", 1),
        ("/v1/gardens", 2),
        ("/v1/jobs", 2),
        ("/v1/facts?entity=Alice&predicate=likes", 2),
        ("/v1/entities/alice", 2),
        ("/health", 0),
    ],
)
def test_round_trips_of_a_read(tenancy: Tenancy, proxy: PoolingProxy, pooled: str, path: str, most: int) -> None:
    tenancy.tenant("acme")
    # Without a limit no block of tokens is reserved, which would take a round trip once in many requests.
    headers = {"Authorization": f"Bearer {tenancy.key('acme', rate_limits={'read': 0})}"}
    with httpx.Client(base_url=pooled, headers=headers) as client:
        client.get(path)
        proxy.reset_counters()
        for _ in range(10):
            client.get(path)
    assert proxy.round_trips <= most * 10, proxy.statements


def test_round_trips_of_writing_a_fact(tenancy: Tenancy, proxy: PoolingProxy, pooled: str) -> None:
    tenancy.tenant("acme")
    headers = {"Authorization": f"Bearer {tenancy.key('acme', rate_limits={'write': 0})}"}
    with httpx.Client(base_url=pooled, headers=headers) as client:
        bodies = [{"subject": f"P {i}", "predicate": "likes", "object": {"entity": f"T {i}"}} for i in range(11)]
        client.post("/v1/facts", json=bodies.pop())
        proxy.reset_counters()
        assert [client.post("/v1/facts", json=body).status_code for body in bodies] == [201] * 10
    assert proxy.round_trips <= 2 * 10, proxy.statements


def test_writes_work_behind_the_pooler(tenancy: Tenancy, pooled: str) -> None:
    tenancy.tenant("acme")
    headers = {"Authorization": f"Bearer {tenancy.key('acme')}", "Idempotency-Key": "pooled"}
    with httpx.Client(base_url=pooled, headers=headers) as client:
        answers = [client.post("/v1/gardens", json={"slug": "pooled"}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [201] * 3
