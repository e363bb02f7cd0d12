"""Rules that are SQL functions: part of the queries that call them, and the same as in Python."""

from collections.abc import Iterator

import numpy as np
import psycopg
import pytest

from app.retrieval.lexical import bm25, inverse_frequencies
from app.retrieval.threads import Thread
from tests.conftest import TestDatabase

Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture(scope="module")
def reader(database: TestDatabase) -> Iterator[Connection]:
    with psycopg.connect(database.app, autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize(
    ("call", "table"),
    [
        ("bm25_score(1.5, t.confidence, t.terms_length, 5)", "graph_facts"),
        ("is_visible(t.scope, t.agent_id, t.garden_id, t.user_id, 'robin', '{}', 'bob')", "memory_notes"),
        ("note_stands(t.created_at, t.deleted_at, now())", "memory_notes"),
        ("is_open_conflict(t.status, t.detected_at, t.resolved_at, now())", "fact_conflicts"),
        (
            "edge_stands(t.valid_from, t.valid_until, t.created_at, t.closed_at, t.retracted_at, now(), now())",
            "entity_edges",
        ),
        (
            "fact_stands(t.fact_id, t.valid_from, t.valid_until, t.created_at, t.closed_at, t.retracted_at, "
            "t.tenant_id, now(), now())",
            "graph_facts",
        ),
        (
            "fact_confidence(t.fact_id, t.confidence, t.weighed_at, t.retracted_at, t.tenant_id, now())",
            "graph_facts",
        ),
    ],
    ids=lambda value: str(value).partition("(")[0],
)
def test_a_rule_is_inlined_into_the_query(reader: Connection, call: str, table: str) -> None:
    rows = reader.execute(f"EXPLAIN VERBOSE SELECT {call} FROM {table} t".encode()).fetchall()
    plan = "\n".join(str(row[0]) for row in rows)
    assert call.partition("(")[0] not in plan


def test_bm25_is_the_same_in_sql_and_python(reader: Connection) -> None:
    row = reader.execute("SELECT bm25_score(1.5, 2, 8, 5), inverse_frequency(3, 10)").fetchone()
    assert row is not None
    score = bm25(np.asarray([[2.0]]), np.asarray([8.0]), np.asarray([1.5]), 5.0, Thread(1), np.zeros(1, dtype=np.bool_))
    assert row[0] == pytest.approx(float(score[0]), rel=1e-14)
    assert row[1] == pytest.approx(inverse_frequencies([3], 10)[0], rel=1e-14)


@pytest.mark.parametrize(
    ("scope", "agent", "garden", "expected"),
    [
        ("project_shared", "wren", None, True),
        ("agent_private", "robin", None, True),
        ("agent_private", "wren", None, False),
        ("project_shared", "wren", "00000000-0000-0000-0000-000000000001", True),
        ("project_shared", "wren", "00000000-0000-0000-0000-000000000002", False),
    ],
)
def test_visibility_follows_from_agent_and_gardens(
    reader: Connection, scope: str, agent: str, garden: str | None, expected: bool
) -> None:
    query = "SELECT is_visible(%s, %s, %s::uuid, '', 'robin', '{00000000-0000-0000-0000-000000000001}', '')"
    assert reader.execute(query, (scope, agent, garden)).fetchone() == (expected,)


@pytest.mark.parametrize(
    ("row_user", "user", "visible", "own"),
    [
        ("", "", True, True),
        ("", "bob", True, False),
        ("bob", "bob", True, True),
        ("carol", "bob", False, False),
        ("carol", "", False, False),
        ("carol", "*", True, True),
        ("", "*", True, True),
    ],
)
def test_visibility_follows_from_the_user(
    reader: Connection, row_user: str, user: str, visible: bool, own: bool
) -> None:
    query = "SELECT is_visible('public', 'wren', NULL, %(row)s, 'robin', '{}', %(user)s), is_own_row(%(row)s, %(user)s)"
    assert reader.execute(query, {"row": row_user, "user": user}).fetchone() == (visible, own)
