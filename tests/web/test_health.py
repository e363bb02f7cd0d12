"""The state of the row-level security policies in /health."""

import asyncio

import httpx
import psycopg

from app.db.catalogue import PolicyState, read_policy_state
from tests.conftest import TestDatabase
from tests.service import RunningService


def test_health_tells_the_state_of_the_policies(service: RunningService) -> None:
    found = httpx.get(f"{service.url}/health", verify=False).json()
    assert (found["status"], found["rls_policies_ok"]) == ("ok", True)
    assert found["rls_policy_count"] > 50
    assert len(found["rls_policy_hash"]) == 64
    assert found["rls_checked_at"] is not None


def test_the_hash_changes_with_a_policy(database: TestDatabase) -> None:
    async def read() -> tuple[PolicyState, PolicyState, PolicyState]:
        connection = await psycopg.AsyncConnection.connect(database.superuser)
        try:
            first, again = await read_policy_state(connection), await read_policy_state(connection)
            await connection.execute("CREATE POLICY everything ON memory_notes USING (true)")
            return first, again, await read_policy_state(connection)
        finally:
            await connection.rollback()
            await connection.close()

    first, again, changed = asyncio.run(read())
    assert first == again
    assert (changed.count, changed.hash != first.hash) == (first.count + 1, True)
