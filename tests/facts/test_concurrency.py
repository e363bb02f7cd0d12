"""Concurrent writers get the right result or an invisible retry, and never leave two values of a single predicate."""

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests.conftest import Tenancy, TestDatabase
from tests.long import sized

WRITERS = 16
WRITES = sized(800, 5000)


@pytest.fixture(scope="module")
def key(tenancy: Tenancy) -> str:
    tenancy.tenant("crowd")
    return tenancy.key("crowd", agent_id="robin", rate_limits={"write": 0, "read": 0})


def at_once(work: Callable[[int], Any], count: int = WRITERS) -> list[Any]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


@pytest.mark.slow
def test_sixteen_writers_of_one_timeline_leave_one_open_fact_and_a_gapless_chain(
    key: str, as_key: Callable[..., httpx.Client], database: TestDatabase
) -> None:
    subject = f"Traveller {uuid4()}"
    as_key(key).post("/v1/predicates", json={"name": "is at", "cardinality": "single"})
    share = WRITES // WRITERS + 1

    def write(number: int) -> Counter[int]:
        client = as_key(key)
        statuses: Counter[int] = Counter()
        for turn in range(min(share, WRITES - number * share)):
            target = {"value": f"mile {number}-{turn}"}
            body = {"subject": subject, "predicate": "is at", "object": target}
            statuses[client.post("/v1/facts", json=body).status_code] += 1
        return statuses

    assert sum(at_once(write), Counter()) == {201: WRITES}
    with psycopg.connect(database.superuser) as connection:
        rows = connection.execute(
            "SELECT f.fact_id, f.valid_from, f.valid_to, f.object_value, f.created_at FROM graph_facts f "
            "JOIN graph_entities e ON e.tenant_id = f.tenant_id AND e.entity_id = f.subject_entity_id "
            "WHERE e.canonical = %s AND f.retracted_at IS NULL ORDER BY f.valid_from",
            (subject,),
        ).fetchall()
        links = connection.execute(
            "SELECT s.from_fact_id, s.to_fact_id, s.effective_at FROM graph_fact_supersessions s "
            "JOIN graph_facts f ON f.tenant_id = s.tenant_id AND f.fact_id = s.to_fact_id "
            "JOIN graph_entities e ON e.tenant_id = f.tenant_id AND e.entity_id = f.subject_entity_id "
            "WHERE e.canonical = %s",
            (subject,),
        ).fetchall()
    assert len(rows) == len({row[3] for row in rows}) == WRITES
    assert [row[2] for row in rows].count(None) == 1
    assert all(before[2] == after[1] for before, after in pairwise(rows))
    assert [row[4] for row in rows] == sorted(row[4] for row in rows), "order of time is order of writing"
    assert set(links) == {(before[0], after[0], after[1]) for before, after in pairwise(rows)}
    open_now = as_key(key).get("/v1/facts", params={"entity": subject}).json()["facts"]
    assert [fact["object"]["value"] for fact in open_now] == [rows[-1][3]]


def test_the_same_new_names_in_any_order_are_made_once(
    key: str, as_key: Callable[..., httpx.Client], database: TestDatabase
) -> None:
    mark = uuid4().hex
    names = [f"newcomer {mark} {number}" for number in range(40)]

    def write(number: int) -> int:
        chosen = random.Random(number).sample(names, 30)
        facts = [
            {"subject": a, "predicate": f"knows {mark} {number % 3}", "object": {"entity": b}}
            for a, b in pairwise(chosen)
        ]
        return as_key(key).post("/v1/facts/batch", json={"facts": facts}).status_code

    assert set(at_once(write)) == {200}
    with psycopg.connect(database.superuser) as connection:
        entities = connection.execute(
            "SELECT canonical, count(*) FROM graph_entities WHERE canonical LIKE %s GROUP BY 1", (f"newcomer {mark}%",)
        ).fetchall()
        predicates = connection.execute(
            "SELECT count(*) FROM graph_predicates WHERE canonical LIKE %s", (f"knows {mark}%",)
        ).fetchone()
    assert {count for _, count in entities} == {1}
    assert len(entities) <= len(names)
    assert predicates == (3,)


def test_the_same_assertion_at_once_is_one_fact_with_every_mention(
    key: str, as_key: Callable[..., httpx.Client]
) -> None:
    body = {"subject": f"Echo {uuid4()}", "predicate": "says", "object": {"value": "hello"}}

    def write(_: int) -> tuple[int, str]:
        answer = as_key(key).post("/v1/facts", json=body)
        return answer.status_code, answer.json()["fact"]["fact_id"]

    answers = at_once(write)
    assert Counter(status for status, _ in answers) == {201: 1, 200: WRITERS - 1}
    (fact_id,) = {fact_id for _, fact_id in answers}
    assert as_key(key).get(f"/v1/facts/{fact_id}").json()["mentions"] == WRITERS


@pytest.mark.slow
def test_writes_activations_merges_and_retractions_at_once_keep_every_timeline_in_order(
    key: str, as_key: Callable[..., httpx.Client], database: TestDatabase
) -> None:
    mark = uuid4().hex
    client = as_key(key)
    people = [f"person {mark} {number}" for number in range(6)]
    ids = [client.post("/v1/entities", json={"canonical": name}).json()["entity"]["entity_id"] for name in people]
    first = {"subject": people[0], "predicate": f"lives in {mark}", "object": {"entity": f"town {mark}"}}
    predicate = client.post("/v1/facts", json=first).json()["fact"]["predicate"]["predicate_id"]

    def work(number: int) -> Counter[int]:
        mine, chance, statuses = as_key(key), random.Random(number), Counter[int]()
        for turn in range(40):
            if number == 0 and turn == 20:
                body = {"status": "active", "cardinality": "single", "resolve": "latest"}
                answer = mine.patch(f"/v1/predicates/{predicate}", json=body)
            elif number == 1 and turn in (10, 25):
                answer = mine.post(f"/v1/entities/{ids[0]}/merge", json={"from": ids[1 + turn // 20]})
            elif number == 2 and turn % 10 == 9:
                body = {"subject": chance.choice(people), "predicate": f"lives in {mark}"}
                answer = mine.post("/v1/facts/retract", json=body)
            else:
                body = {**first, "subject": chance.choice(people)}
                body["object"] = {"entity": f"town {mark} {chance.randrange(5)}"}
                if chance.random() < 0.5:
                    body["valid_from"] = f"20{chance.randrange(10, 26)}-01-01T00:00:00Z"
                answer = mine.post("/v1/facts", json=body)
            statuses[answer.status_code] += 1
        return statuses

    statuses = sum(at_once(work), Counter[int]())
    assert set(statuses) <= {200, 201}, statuses
    with psycopg.connect(database.superuser) as connection:
        overlapping = connection.execute(
            "SELECT count(*) FROM graph_facts a JOIN graph_facts b ON b.tenant_id = a.tenant_id "
            "AND b.subject_entity_id = a.subject_entity_id AND b.predicate_id = a.predicate_id "
            "AND b.fact_id <> a.fact_id AND b.valid_from < a.valid_until AND b.valid_until > a.valid_from "
            "WHERE a.predicate_id = %s AND a.retracted_at IS NULL AND b.retracted_at IS NULL",
            (predicate,),
        ).fetchone()
        astray = connection.execute(
            "SELECT count(*) FROM graph_facts f JOIN graph_entities e ON e.tenant_id = f.tenant_id "
            "AND e.entity_id = f.subject_entity_id WHERE f.predicate_id = %s AND e.merged_into IS NOT NULL",
            (predicate,),
        ).fetchone()
        edges = connection.execute(
            "SELECT count(*) FROM graph_facts f FULL JOIN entity_edges x ON x.tenant_id = f.tenant_id "
            "AND x.edge_id = f.fact_id WHERE coalesce(f.predicate_id, x.predicate_id) = %s AND (x.edge_id IS NULL "
            "OR f.fact_id IS NULL OR (x.subject_entity_id, x.object_entity_id, x.confidence, x.valid_until) "
            "<> (f.subject_entity_id, f.object_entity_id, f.confidence, f.valid_until) "
            "OR x.retracted_at IS DISTINCT FROM f.retracted_at OR x.closed_at IS DISTINCT FROM f.closed_at)",
            (predicate,),
        ).fetchone()
    assert (overlapping, astray, edges) == ((0,), (0,), (0,))
