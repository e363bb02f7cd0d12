"""A walk takes one round trip beside authentication, and works behind a pooler in transaction mode."""

from collections.abc import Iterator

import httpx
import pytest

from tests.conftest import Tenancy, TestDatabase, as_url
from tests.objects.traversal.conftest import UNLIMITED
from tests.objects.traversal.shared import Graph, Superuser
from tests.pooling_proxy import PoolingProxy
from tests.service import start_service


@pytest.fixture(scope="module")
def proxy(database: TestDatabase) -> Iterator[PoolingProxy]:
    made = PoolingProxy(database.app, server_connections=8)
    made.start_in_thread()
    yield made
    made.stop()


def test_round_trips_of_a_walk(tenancy: Tenancy, proxy: PoolingProxy, superuser: Superuser) -> None:
    tenancy.tenant("pooled")
    headers = {"Authorization": f"Bearer {tenancy.key('pooled', rate_limits=UNLIMITED)}"}
    with (
        start_service(as_url(proxy.conninfo), PREPARED_STATEMENTS="off") as running,
        httpx.Client(base_url=running.url, headers=headers, timeout=30) as client,
    ):
        graph = Graph(superuser, client, tenant="pooled")
        graph.draw("a knows b", "b knows c", "c likes d", "a knows e")
        filters = {"node": {"rank": {"exists": False}}}
        assert graph.near("a", maxDepth=3, filters=filters) == "a0 b1 e1 c2 d3"
        graph.traverse("a")
        proxy.reset_counters()
        for _ in range(5):
            graph.expand("a", maxDepth=3, filters=filters, returnPaths=True, dedupe="path")
            graph.traverse("a", limit=2)
        assert proxy.round_trips <= 2 * 2 * 5, proxy.statements
