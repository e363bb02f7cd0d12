"""A walk takes one round trip beside authentication, and works behind a pooler in transaction mode."""

from collections.abc import Iterator

import httpx
import pytest

from tests.conftest import Tenancy, TestDatabase, as_url
from tests.graph.shared import Graph, pages
from tests.pooling_proxy import PoolingProxy
from tests.service import start_service


@pytest.fixture(scope="module")
def proxy(database: TestDatabase) -> Iterator[PoolingProxy]:
    made = PoolingProxy(database.app, server_connections=8)
    made.start_in_thread()
    yield made
    made.stop()


def test_round_trips_of_a_walk(tenancy: Tenancy, proxy: PoolingProxy) -> None:
    tenancy.tenant("pooled")
    headers = {"Authorization": f"Bearer {tenancy.key('pooled', rate_limits={'read': 0, 'write': 0})}"}
    with (
        start_service(as_url(proxy.conninfo), PREPARED_STATEMENTS="off") as running,
        httpx.Client(base_url=running.url, headers=headers) as client,
    ):
        graph = Graph(client)
        graph.draw("a knows b", "b knows c", "c likes d", "a knows e")
        asked = {"entity": graph.name("a"), "depth": 3, "relation_filter": f"knows*,{graph.relation('likes')}"}
        found = pages(client, **asked, page_size=2)
        assert [len(page) for page in found] == [2, 2]
        proxy.reset_counters()
        for _ in range(5):
            pages(client, **asked, page_size=2)
        assert proxy.round_trips <= 2 * 2 * 5, proxy.statements
