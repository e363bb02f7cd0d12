"""Random graphs with a history, walked by the database and by a model: the same entities, paths and bounds, always."""

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest
from psycopg.rows import dict_row

from tests.conftest import TestDatabase
from tests.graph.shared import Graph, Superuser, walk
from tests.graph.walk_model import FOREVER, Asked, Edge, Found
from tests.graph.walk_model import walk as expected

NODES = 14
RELATIONS = ("knows", "likes", "owns")
SCOPES = ("project_shared", "org_shared")
START = datetime(2010, 1, 1, tzinfo=UTC)
WALK = """
    SELECT w.* FROM traverse_edges(
        ROW('acme', 'default', %(valid)s, %(known)s::timestamptz, %(scope)s)::read_context,
        ROW(%(depth)s, %(direction)s, %(confidence)s, %(trust)s, %(fans)s::int[], %(cap)s)::traversal,
        %(seeds)s::uuid[], %(relations)s::uuid[], %(effective)s) w"""
EXPAND = """
    SELECT x.* FROM expand_seeds(
        ROW('acme', 'default', %(valid)s, %(known)s::timestamptz, %(scope)s)::read_context,
        ROW(%(depth)s, 'both', %(confidence)s, 0, %(fans)s::int[], %(cap)s)::traversal,
        %(seeds)s::uuid[], %(effective)s, %(most)s) x"""


@pytest.fixture(scope="module")
def reader(database: TestDatabase) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    """A connection as the service has it."""
    kind = psycopg.Connection[dict[str, Any]]
    with kind.connect(database.app, row_factory=dict_row) as connection:
        yield connection


def ask(reader: psycopg.Connection[dict[str, Any]], query: str, params: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a read in the scope of an agent."""
    with reader.transaction():
        reader.execute("SELECT set_scope('acme', 'default', 'robin', '{}', '')")
        return reader.execute(query.encode(), params).fetchall()


def clock(superuser: Superuser) -> datetime:
    row = superuser.execute("SELECT clock_timestamp() AS now").fetchone()
    assert row is not None
    return row["now"]


def live_a_little(robin: httpx.Client, superuser: Superuser, chance: random.Random) -> tuple[Graph, list[datetime]]:
    """Writes, ends, weighs and takes back at random; answers the graph and moments in between."""
    graph, moments = Graph(robin), [clock(superuser)]
    for _ in range(6):
        for scope in SCOPES:
            edges = {
                f"n{chance.randrange(NODES)} {chance.choice(RELATIONS)} n{chance.randrange(NODES)}"
                for _ in range(chance.randrange(4, 14))
            }
            times: dict[str, Any] = {"valid_from": (START + timedelta(days=chance.randrange(3000))).isoformat()}
            if chance.random() < 0.3:
                times["valid_to"] = (START + timedelta(days=chance.randrange(3001, 6000))).isoformat()
            graph.draw(*sorted(edges), scope=scope, confidence=chance.choice([0.3, 0.5, 0.5, 0.9, 1.0]), **times)
            moments.append(clock(superuser))
        for key in chance.sample(sorted(graph.facts), 3):
            fact = graph.facts[key]
            if chance.random() < 0.5:
                # Some have been taken back before.
                robin.post(f"/v1/facts/{fact['fact_id']}/retract", json={})
            else:
                end = START + timedelta(days=chance.randrange(3001, 9000))
                robin.patch(f"/v1/facts/{fact['fact_id']}", json={"valid_to": end.isoformat()})
            moments.append(clock(superuser))
    return graph, moments


def load(graph: Graph, superuser: Superuser) -> list[Edge]:
    """All edges between its entities, with what the history of facts tells of them."""
    nodes = list(graph.entities.values())

    def past(query: str) -> dict[UUID, list[tuple[Any, ...]]]:
        found: dict[UUID, list[tuple[Any, ...]]] = {}
        for row in superuser.execute(query.encode()).fetchall():
            fact_id, *rest = row.values()
            found.setdefault(fact_id, []).append(tuple(rest))
        return found

    ends = past("SELECT fact_id, recorded_at, previous_valid_to FROM fact_closings ORDER BY recorded_at")
    weights = past("SELECT fact_id, recorded_at, previous_confidence FROM fact_confidences ORDER BY recorded_at")
    retractions = past("SELECT fact_id, retracted_at, confidence_before FROM fact_retractions ORDER BY retracted_at")
    rows = superuser.execute(
        "SELECT f.fact_id, f.subject_entity_id, f.predicate_id, f.object_entity_id, f.scope, f.source_trust, "
        "f.confidence, f.valid_from, f.valid_to, f.created_at, f.retracted_at FROM graph_facts f "
        "WHERE f.tenant_id = 'acme' AND f.subject_entity_id = ANY (%s::uuid[])",
        (nodes,),
    ).fetchall()
    return [
        Edge(
            edge_id=row["fact_id"],
            subject=row["subject_entity_id"],
            relation=row["predicate_id"],
            target=row["object_entity_id"],
            scope=row["scope"],
            trust=row["source_trust"],
            confidence=row["confidence"],
            valid_from=row["valid_from"],
            valid_to=row["valid_to"] or FOREVER,
            created=row["created_at"],
            retracted=retractions[row["fact_id"]][0] if row["retracted_at"] else None,
            ends=[(at, end or FOREVER) for at, end in ends.get(row["fact_id"], [])],
            weights=[(at, weight) for at, weight in weights.get(row["fact_id"], [])],
        )
        for row in rows
    ]


def question(graph: Graph, moments: list[datetime], chance: random.Random) -> Asked:
    # In the order of names, so that a seed is the same question in every run.
    relations = [UUID(graph.predicates[word]) for word in RELATIONS]
    known = chance.choice(moments)
    seeds = chance.sample(sorted(graph.entities), chance.choice([1, 1, 1, 3]))
    return Asked(
        seeds=[UUID(graph.id(letter)) for letter in seeds],
        depth=chance.randrange(1, 4),
        scope=chance.choice(SCOPES),
        direction=chance.choice(["out", "in", "both", "both"]),
        relations=chance.choice([None, None, relations[:1], relations[1:]]),
        confidence=chance.choice([0.0, 0.1, 0.4, 0.5, 0.95]),
        trust=chance.choice([0.0, 0.0, 0.5]),
        effective=chance.choice([0.0, 0.0, 0.2, 0.3]),
        valid=chance.choice([known, START + timedelta(days=chance.randrange(9000))]),
        known=known,
        fans=chance.choice([(1000, 100, 100), (2, 2, 2), (3, 1, 2), (1, 1, 1)]),
        cap=chance.choice([2000, 2000, 1, 3, 6]),
    )


def found_by(reader: psycopg.Connection[dict[str, Any]], asked: Asked, *, known: datetime | None) -> Found:
    params: dict[str, Any] = {
        **vars(asked),
        "seeds": [str(seed) for seed in asked.seeds],
        "relations": None if asked.relations is None else [str(found) for found in asked.relations],
        "fans": list(asked.fans),
        "known": known,
    }
    rows = ask(reader, WALK, params)
    reached = {row["entity_id"]: (row["hops"], row["confidence"], tuple(row["path"])) for row in rows}
    assert all(row["path"][-1] == row["edge_id"] for row in rows)
    assert len(reached) == len(rows)
    return Found(reached, any(row["truncated"] for row in rows))


def same(found: Found, model: Found) -> bool:
    """Whether they agree; where nothing was reached, no row tells that something was left out."""
    return found.reached == model.reached and (found.truncated == model.truncated or not model.reached)


@pytest.mark.parametrize("seed", range(8))
def test_walks_are_those_of_the_model(
    robin: httpx.Client, superuser: Superuser, reader: psycopg.Connection[dict[str, Any]], seed: int
) -> None:
    chance = random.Random(seed)
    graph, moments = live_a_little(robin, superuser, chance)
    edges = load(graph, superuser)
    assert any(edge.retracted for edge in edges)
    assert any(edge.ends for edge in edges)
    sizes: list[int] = []
    for number in range(120):
        asked = question(graph, moments, chance)
        if number % 3 == 0:
            # The present, which has a way of its own.
            now = clock(superuser)
            asked = replace(asked, known=now, valid=chance.choice([now, asked.valid]))
            assert same(found_by(reader, asked, known=None), expected(edges, asked)), (seed, number, asked)
        assert same(found_by(reader, asked, known=asked.known), expected(edges, asked)), (seed, number, asked)
        sizes.append(len(expected(edges, asked).reached))
    assert max(sizes) > 5, "not all of them are empty"


def test_the_answer_over_http_is_that_of_the_model(robin: httpx.Client, superuser: Superuser) -> None:
    chance = random.Random(99)
    graph, moments = live_a_little(robin, superuser, chance)
    edges = load(graph, superuser)
    for _ in range(60):
        asked = question(graph, moments, chance)
        (start, *_) = (letter for letter, found in graph.entities.items() if UUID(found) == asked.seeds[0])
        asked = replace(asked, seeds=asked.seeds[:1], relations=None, effective=0.0, fans=(1000, 100, 100), cap=2000)
        params = {"as_of": asked.known.isoformat(), "valid_at": asked.valid.isoformat(), "depth": asked.depth}
        answer = robin.get(
            "/v1/graph/neighbors",
            params={
                "entity": graph.name(start), "scope": asked.scope, "direction": asked.direction,
                "min_confidence": asked.confidence, "min_trust": asked.trust, "page_size": 200, **params,
            },
        )  # fmt: skip
        assert answer.status_code == 200, answer.text
        if answer.json()["entity"] is None:
            assert not expected(edges, asked).reached, "not known then"
            continue
        items = answer.json()["neighbors"]
        reached = {
            UUID(item["entity"]["entity_id"]): (
                item["hops"], item["confidence"], tuple(UUID(step["fact_id"]) for step in item["path"]),
            )
            for item in items
        }  # fmt: skip
        assert reached == expected(edges, asked).reached
        assert answer.json()["total_hint"] == len(reached)
        order = [(item["hops"], UUID(item["entity"]["entity_id"])) for item in items]
        assert order == sorted(order)


def test_seeds_are_expanded_in_each_scope_with_the_degrees(
    robin: httpx.Client, superuser: Superuser, reader: psycopg.Connection[dict[str, Any]]
) -> None:
    chance = random.Random(7)
    graph, _ = live_a_little(robin, superuser, chance)
    edges = load(graph, superuser)
    seeds = [UUID(graph.entities[letter]) for letter in sorted(graph.entities)[:3]]
    now = clock(superuser)
    plain: dict[str, Any] = {"relations": None, "confidence": 0.1, "trust": 0.0, "effective": 0.2, "direction": "both"}
    bounds: dict[str, Any] = {"depth": 2, "fans": (50, 20), "cap": 500}
    for known in (None, now):
        params = {**plain, **bounds, "seeds": [str(seed) for seed in seeds], "valid": None, "known": known}
        rows = ask(reader, EXPAND, {**params, "fans": [50, 20], "scope": None, "most": 1000})
        for scope in SCOPES:
            asked = Asked(seeds=seeds, scope=scope, valid=now, known=now, **plain, **bounds)
            believed = [edge for edge in edges if edge.scope == scope and edge.believed_at(now, now)]
            subjects = {edge.edge_id: edge.subject for edge in believed}
            degrees = {subject: sum(edge.subject == subject for edge in believed) for subject in set(subjects.values())}
            reached = expected(edges, asked).reached
            assert {
                row["entity_id"]: (row["hops"], row["confidence"], row["edge_id"])
                for row in rows
                if row["scope"] == scope
            } == {found: (hops, sure, path[-1]) for found, (hops, sure, path) in reached.items()}
            for row in rows:
                if row["scope"] == scope:
                    assert row["subject_id"] == subjects[row["edge_id"]]
                    assert row["out_degree"] == degrees[row["subject_id"]]
        assert rows
        bounded = ask(reader, EXPAND, {**params, "fans": [50, 20], "scope": "project_shared", "most": 2})
        assert {row["scope"] for row in bounded} == {"project_shared"}
        assert max(row["out_degree"] for row in bounded) == 2


def test_a_walk_finds_nothing_without_a_scope(robin: httpx.Client, database: TestDatabase) -> None:
    """The policies guard the functions like any query."""
    graph = Graph(robin)
    graph.draw("a to b")
    assert walk(robin, entity=graph.name("a"))["total_hint"] == 1
    params: dict[str, Any] = {
        "scope": "project_shared", "seeds": [graph.id("a")], "depth": 1, "direction": "both", "relations": None,
        "confidence": 0.1, "trust": 0.0, "effective": 0.0, "valid": datetime.now(UTC), "known": None, "fans": [10],
        "cap": 10,
    }  # fmt: skip
    with psycopg.connect(database.app) as connection:
        assert connection.execute(WALK.encode(), params).fetchall() == []
        connection.execute("SELECT set_scope('rival', 'default', 'robin', '{}', '')")
        assert connection.execute(WALK.encode(), params).fetchall() == []
        connection.execute("SELECT set_scope('acme', 'default', 'robin', '{}', '')")
        assert len(connection.execute(WALK.encode(), params).fetchall()) == 1


def test_edges_are_read_by_index_alone_and_in_its_order(reader: psycopg.Connection[dict[str, Any]]) -> None:
    """A hub costs no more than its surest edges: the function is part of the query, and nothing is sorted."""
    with reader.transaction():
        reader.execute("SELECT set_scope('acme', 'default', 'robin', '{}', '')")
        reader.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
        rows = reader.execute(
            "EXPLAIN SELECT x.* FROM unnest(ARRAY[gen_random_uuid()]) f(id) CROSS JOIN LATERAL edges_now("
            "'acme', 'default', 'project_shared', f.id, true, true, NULL, .1, 0, 0, now(), 101) x"
        ).fetchall()
    plan = "\n".join(row["QUERY PLAN"] for row in rows)
    for index in ("entity_edges_out_idx", "entity_edges_in_idx"):
        assert f"Index Only Scan Backward using {index}" in plan
    assert "Merge Append" in plan
    assert "Sort  (" not in plan
