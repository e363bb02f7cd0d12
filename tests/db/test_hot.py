"""The hot path's connections: they survive changes of the schema, cancellation, and a server without room."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import psycopg
import pytest

from app.db.database import Database
from app.db.hot import HotPool
from app.db.scope import Scope
from app.errors import Unavailable
from app.main import open_database
from tests.conftest import Tenancy, TestDatabase
from tests.service import start_service

pytestmark = pytest.mark.anyio


@pytest.fixture
async def db(fresh_database: TestDatabase) -> AsyncIterator[Database]:
    made = open_database(fresh_database.settings())
    await made.open()
    yield made
    await made.close()


async def test_a_function_may_change_its_answer_while_we_run(db: Database, fresh_database: TestDatabase) -> None:
    def define(body: str) -> None:
        with psycopg.connect(fresh_database.superuser, autocommit=True) as connection:
            connection.execute(f"DROP FUNCTION IF EXISTS answer(); CREATE FUNCTION answer() {body}".encode())

    define("RETURNS TABLE (a int) LANGUAGE sql AS 'SELECT 1'")
    assert await db.call("SELECT * FROM answer()") == [{"a": 1}]
    define("RETURNS TABLE (a int, b text) LANGUAGE sql AS $$SELECT 2, 'two'$$")
    assert await db.call("SELECT * FROM answer()") == [{"a": 2, "b": "two"}]


async def test_many_statements_of_many_types_keep_their_names_apart(db: Database) -> None:
    for value in (1, 2**40, "text", None, 2.5, True):
        for query in ("SELECT %s AS x", "SELECT %s AS y", "SELECT %s AS z"):
            (row,) = await db.call(query, (value,))
            assert str(next(iter(row.values()))) == str(value)


async def test_an_answer_never_reaches_somebody_elses_question(fresh_database: TestDatabase) -> None:
    pool = HotPool(fresh_database.app, size=2, prepared=True, tuned=True)

    async def ask(number: int) -> int:
        async with pool.connection() as hot:
            (row,) = await hot.run("SELECT %s::int AS n, pg_sleep(0.002)", (number,))
            return row["n"]

    for start in range(0, 400, 20):
        tasks = [asyncio.create_task(ask(number)) for number in range(start, start + 20)]
        await asyncio.sleep(0.003)
        for task in tasks[::3]:
            task.cancel()
        for number, task in enumerate(tasks, start=start):
            try:
                assert await task == number
            except asyncio.CancelledError:
                continue
    await pool.close_idle()


async def test_a_server_without_room_is_unavailable_and_no_mistake_of_ours(
    fresh_database: TestDatabase, superuser_conninfo: str
) -> None:
    with psycopg.connect(superuser_conninfo, autocommit=True) as connection:
        # Of this database, not of the role: services of other modules may still be connected.
        # From another database: a closed connection counts until its backend has ended.
        connection.execute(f"ALTER DATABASE {fresh_database.name} CONNECTION LIMIT 1".encode())
    db = open_database(fresh_database.settings())
    try:
        await db.open()
        with pytest.raises(Unavailable):
            async with db.tenant(Scope(tenant_id="acme")):
                pass
    finally:
        await db.close()


def test_terminated_backends_go_unnoticed_by_readers(fresh_database: TestDatabase) -> None:
    tenancy = Tenancy(fresh_database)
    tenancy.tenant("acme")
    key = tenancy.key("acme")
    with start_service(fresh_database.url("app")) as service:
        headers = {"Authorization": f"Bearer {key}"}
        with (
            httpx.Client(base_url=service.url, headers=headers, verify=False) as client,
            psycopg.connect(fresh_database.superuser, autocommit=True) as connection,
        ):
            for number in range(10):
                assert client.get("/v1/whoami").status_code == 200
                assert client.get("/v1/notes").status_code == 200
                assert client.post("/v1/notes", json={"content": f"note {number}"}).status_code == 201
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'palimpsest_app' "
                    "AND datname = current_database()"
                )
