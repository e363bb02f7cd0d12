"""The pooling proxy shares server connections between transactions, as the tests behind it rely on."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from typing import TYPE_CHECKING, LiteralString

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.pooling_proxy import PoolingProxy, ServerUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def proxy(superuser_conninfo: str) -> Iterator[PoolingProxy]:
    """A proxy with one server connection."""
    running = PoolingProxy(superuser_conninfo).start_in_thread()
    yield running
    running.stop()


def connect(proxy: PoolingProxy, *, autocommit: bool = False) -> psycopg.Connection:
    """Return a client connection that prepares nothing."""
    return psycopg.connect(proxy.conninfo, autocommit=autocommit, prepare_threshold=None, connect_timeout=10)


def value(connection: psycopg.Connection, statement: LiteralString) -> object:
    """Return the one value a statement gives."""
    row = connection.execute(statement).fetchone()
    assert row is not None
    return row[0]


def test_two_clients_alternate_over_one_server_connection(proxy: PoolingProxy) -> None:
    with connect(proxy) as first, connect(proxy) as second:
        seen: list[object] = []
        for client in (first, second, first, second):
            seen.append(value(client, "SELECT pg_backend_pid()"))
            client.commit()
    assert len(seen) == 4
    assert len(set(seen)) == 1


def test_set_local_stays_in_its_transaction(proxy: PoolingProxy) -> None:
    with connect(proxy) as first, connect(proxy) as second:
        first.execute("SET LOCAL application_name = 'mine alone'")
        assert value(first, "SHOW application_name") == "mine alone"
        first.commit()
        assert value(second, "SHOW application_name") != "mine alone"
        second.commit()
        assert value(first, "SHOW application_name") != "mine alone"


def test_session_set_leaks_to_the_other_client(proxy: PoolingProxy) -> None:
    with connect(proxy) as first, connect(proxy) as second:
        first.execute("SET application_name = 'leaked'")
        first.commit()
        assert value(second, "SHOW application_name") == "leaked"


def test_round_trips_of_an_autocommit_select(proxy: PoolingProxy) -> None:
    with connect(proxy, autocommit=True) as client:
        proxy.reset_counters()
        assert value(client, "SELECT 1") == 1
        assert (proxy.round_trips, proxy.transactions, proxy.statements) == (1, 1, ["SELECT 1"])


def test_round_trips_of_a_transaction(proxy: PoolingProxy) -> None:
    with connect(proxy) as client:
        proxy.reset_counters()
        row = client.execute("SELECT %s::int", (7,)).fetchone()
        client.commit()
        assert row == (7,)
        assert (proxy.round_trips, proxy.transactions) == (3, 1)
        assert proxy.statements == ["BEGIN", "SELECT $1::int", "COMMIT"]


def test_a_pipeline_holds_its_connection_up_to_the_last_sync(proxy: PoolingProxy) -> None:
    with connect(proxy, autocommit=True) as client, client.pipeline() as pipeline:
        first = client.execute("SELECT %s::int", (1,))
        pipeline.sync()
        second = client.execute("SELECT %s::int", (2,))
        assert (first.fetchone(), second.fetchone()) == ((1,), (2,))


def test_the_second_client_waits_for_the_end_of_the_first_transaction(proxy: PoolingProxy) -> None:
    answered = threading.Event()

    def ask() -> None:
        with connect(proxy, autocommit=True) as second:
            second.execute("SELECT 1")
            answered.set()

    with connect(proxy) as first:
        first.execute("SELECT 1")
        thread = threading.Thread(target=ask)
        thread.start()
        assert not answered.wait(0.3)
        first.execute("SELECT 2")
        first.commit()
        assert answered.wait(10)
        thread.join()


def test_two_server_connections_serve_two_transactions_at_once(superuser_conninfo: str) -> None:
    proxy = PoolingProxy(superuser_conninfo, server_connections=2).start_in_thread()
    try:
        with connect(proxy) as first, connect(proxy) as second:
            assert value(first, "SELECT pg_backend_pid()") != value(second, "SELECT pg_backend_pid()")
    finally:
        proxy.stop()


def test_an_error_in_a_transaction_keeps_the_link_until_rollback(proxy: PoolingProxy) -> None:
    with connect(proxy) as first, connect(proxy) as second:
        with pytest.raises(psycopg.errors.DivisionByZero):
            first.execute("SELECT 1/0")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            first.execute("SELECT 1")
        first.rollback()
        assert value(second, "SELECT 2") == 2


def vanish(client: psycopg.Connection) -> None:
    """Cut the connection without the Terminate message."""
    with socket.socket(fileno=os.dup(client.fileno())) as raw:
        raw.shutdown(socket.SHUT_RDWR)
    client.close()


@pytest.mark.parametrize("leave", [vanish, psycopg.Connection.close])
def test_a_client_that_leaves_in_a_transaction_costs_the_server_connection(
    proxy: PoolingProxy, leave: Callable[[psycopg.Connection], None]
) -> None:
    first = connect(proxy)
    before = value(first, "SELECT pg_backend_pid()")
    first.execute("SET application_name = 'left behind'")
    leave(first)
    with connect(proxy) as second:
        assert value(second, "SELECT pg_backend_pid()") != before
        assert value(second, "SHOW application_name") != "left behind"


def test_an_idle_client_leaves_the_server_connection_alone(proxy: PoolingProxy) -> None:
    with connect(proxy) as first:
        before = value(first, "SELECT pg_backend_pid()")
    with connect(proxy) as second:
        assert value(second, "SELECT pg_backend_pid()") == before


def test_named_statements_are_refused(proxy: PoolingProxy) -> None:
    with connect(proxy) as client:
        client.prepare_threshold = 0
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="named prepared statement"):
            client.execute("SELECT %s::int", (1,))
        client.prepare_threshold = None
        client.rollback()
        assert value(client, "SELECT 3") == 3


def test_large_messages_both_ways(proxy: PoolingProxy) -> None:
    text = "x" * 5_000_000
    with connect(proxy) as client:
        assert client.execute("SELECT %s::text || 'y'", (text,)).fetchone() == (text + "y",)
        assert len(client.execute("SELECT repeat('z', 1000) FROM generate_series(1, 5000)").fetchall()) == 5000


def test_many_clients_at_once(superuser_conninfo: str) -> None:
    proxy = PoolingProxy(superuser_conninfo, server_connections=2).start_in_thread()
    sums: list[int] = []

    def work() -> None:
        with connect(proxy) as client:
            for number in range(20):
                row = client.execute("SELECT %s::int", (number,)).fetchone()
                client.commit()
                assert row is not None
                sums.append(row[0])

    try:
        threads = [threading.Thread(target=work) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(sums) == sorted(list(range(20)) * 10)
        assert (proxy.round_trips, proxy.transactions) == (600, 200)
    finally:
        proxy.stop()


@pytest.mark.parametrize("different", [{"user": "somebody_else"}, {"options": "-c search_path=elsewhere"}])
def test_a_start_up_the_pool_cannot_honour_is_refused(proxy: PoolingProxy, different: dict[str, str]) -> None:
    with pytest.raises(psycopg.OperationalError, match=r"this pool is for user|unsupported startup parameter"):
        psycopg.connect(make_conninfo(proxy.conninfo, **different), connect_timeout=10)


def test_a_terminated_backend_is_replaced(proxy: PoolingProxy, superuser_conninfo: str) -> None:
    with connect(proxy) as client:
        backend = value(client, "SELECT pg_backend_pid()")
        with psycopg.connect(superuser_conninfo) as direct:
            direct.execute("SELECT pg_terminate_backend(%s, 5000)", (backend,))
        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 1")
    with connect(proxy) as client:
        assert value(client, "SELECT pg_backend_pid()") != backend


def test_an_unreachable_server_is_reported() -> None:
    with pytest.raises(ServerUnavailableError):
        PoolingProxy("host=/nowhere user=nobody dbname=nothing").start_in_thread()


def test_as_an_async_context_manager(superuser_conninfo: str) -> None:
    async def run() -> None:
        async with (
            PoolingProxy(superuser_conninfo) as proxy,
            await psycopg.AsyncConnection.connect(proxy.conninfo, prepare_threshold=None) as client,
        ):
            cursor = await client.execute("SELECT 1")
            assert await cursor.fetchone() == (1,)
            await client.commit()
            assert proxy.round_trips == 3

    asyncio.run(run())
