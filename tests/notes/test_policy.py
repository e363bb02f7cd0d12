"""The policy of memory tables: private rows, gardens, suppression and reach are kept by the database itself."""

from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.conftest import TestDatabase

GARDEN = str(uuid4())

INSERT = """
    INSERT INTO memory_notes (tenant_id, note_id, project_id, agent_id, scope, garden_id, owner_key, type, content,
                              content_hash, tags, occurred_at, pinned, suppression, created_at, updated_at)
    VALUES ('acme', gen_random_uuid(), %(project)s, %(agent)s, %(scope)s, %(garden)s, '', 'fact', %(content)s,
            %(content)s, '{}', now(), false, %(suppression)s, now(), now())"""

ROWS = [
    ("shared", {}),
    ("private of robin", {"scope": "agent_private"}),
    ("private of wren", {"scope": "agent_private", "agent": "wren"}),
    ("in the garden", {"garden": GARDEN}),
    ("erased", {"suppression": 1}),
    ("held", {"suppression": 2}),
    ("elsewhere", {"project": "two"}),
    ("elsewhere, for all", {"project": "two", "scope": "org_shared"}),
    ("elsewhere, private", {"project": "two", "scope": "agent_private"}),
    ("elsewhere, in a garden", {"project": "two", "scope": "org_shared", "garden": str(uuid4())}),
    ("elsewhere, erased", {"project": "two", "scope": "public", "suppression": 1}),
    ("elsewhere, held", {"project": "two", "scope": "public", "suppression": 2}),
]


def row(content: str, **changes: Any) -> dict[str, Any]:
    return {
        "project": "one", "agent": "robin", "scope": "project_shared", "garden": None, "suppression": 0,
        "content": content, **changes,
    }  # fmt: skip


@pytest.fixture(scope="module")
def filled(database: TestDatabase) -> TestDatabase:
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        for content, changes in ROWS:
            connection.execute(INSERT.encode(), row(content, **changes))
    return database


def enter(connection: psycopg.Connection[Any], agent: str, gardens: list[str], reach: str = "") -> None:
    connection.execute("SELECT set_scope('acme', 'one', %s, %s::uuid[], %s)", (agent, gardens, reach))


@pytest.mark.parametrize(
    ("agent", "gardens", "reach", "seen"),
    [
        ("robin", [], "", {"shared", "private of robin"}),
        ("wren", [], "", {"shared", "private of wren"}),
        ("wren", [GARDEN], "", {"shared", "private of wren", "in the garden"}),
        ("", [GARDEN], "", {"shared", "in the garden"}),
        ("robin", [], "cross_project", {"shared", "private of robin", "elsewhere, for all"}),
        ("robin", [GARDEN], "shared", {"shared", "private of robin", "in the garden", "elsewhere, for all"}),
        ("admin", [GARDEN], "legal_hold", {"shared", "in the garden", "held"}),
    ],
)
def test_who_sees_what(filled: TestDatabase, agent: str, gardens: list[str], reach: str, seen: set[str]) -> None:
    with psycopg.connect(filled.app) as connection:
        enter(connection, agent, gardens, reach)
        found = connection.execute("SELECT content FROM memory_notes WHERE tenant_id = 'acme'").fetchall()
    assert {content for (content,) in found} == seen


@pytest.mark.parametrize(
    "changes",
    [
        {"scope": "agent_private", "agent": "wren"},
        {"garden": "018f0000-0000-7000-8000-0000000000ff"},
        {"project": "two", "scope": "org_shared"},
    ],
    ids=str,
)
@pytest.mark.parametrize("reach", ["cross_project", "shared"])
def test_what_one_cannot_own_one_cannot_write(filled: TestDatabase, changes: dict[str, Any], reach: str) -> None:
    with psycopg.connect(filled.app) as connection:
        enter(connection, "robin", [], reach)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(INSERT.encode(), row("forged", **changes))


@pytest.mark.parametrize("reach", ["cross_project", "shared"])
def test_shared_rows_of_another_project_can_be_read_but_not_changed(filled: TestDatabase, reach: str) -> None:
    with psycopg.connect(filled.app) as connection:
        enter(connection, "robin", [], reach)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("UPDATE memory_notes SET pinned = true WHERE content = 'elsewhere, for all'")


def test_nobody_who_serves_requests_deletes_for_good(filled: TestDatabase) -> None:
    with psycopg.connect(filled.app) as connection:
        enter(connection, "robin", [])
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("DELETE FROM memory_notes WHERE tenant_id = 'acme'")
