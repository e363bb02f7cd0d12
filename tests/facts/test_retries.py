"""Writes that wait for a concurrent transaction, and arguments of SQL functions that a caller forges."""

import json
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests.conftest import TestDatabase
from tests.facts.shared import entity, new, write


def in_scope(database: TestDatabase, agent: str = "robin") -> psycopg.Connection[Any]:
    """A connection of the service's own role, in the scope of an agent of acme."""
    connection = psycopg.connect(database.app)
    connection.execute("SELECT set_scope('acme', 'default', %s, '{}', '')", (agent,))
    return connection


def meanwhile(connection: psycopg.Connection[Any], statement: str, values: Any, work: Callable[[], Any]) -> Any:
    """Runs work while a transaction that has run a statement is still open; work has to wait for its end."""
    connection.execute(statement.encode(), values)
    with ThreadPoolExecutor(1) as pool:
        waiting: Future[Any] = pool.submit(work)
        time.sleep(0.4)
        assert not waiting.done(), "it was to wait"
        connection.commit()
        return waiting.result(30)


MERGE = "SELECT * FROM merge_entities(%s, %s, 'key')"


def test_an_alias_that_arrives_during_a_merge_goes_to_what_stays(robin: httpx.Client, database: TestDatabase) -> None:
    gone, stays, alias = entity(robin), entity(robin), new()

    def add() -> httpx.Response:
        return robin.post(f"/v1/entities/{gone['entity_id']}/aliases", json={"alias": alias})

    with in_scope(database) as merging:
        answer = meanwhile(merging, MERGE, (gone["entity_id"], stays["entity_id"]), add)
    assert (answer.status_code, answer.json()["alias"]["entity_id"]) == (201, stays["entity_id"])
    assert write(robin, alias, new(), "anything")["fact"]["subject"]["entity_id"] == stays["entity_id"]


def test_a_retraction_that_waited_for_a_merge_loses_no_later_write(robin: httpx.Client, database: TestDatabase) -> None:
    gone, stays, predicate = entity(robin), entity(robin), new()
    fact = write(robin, gone["canonical"], predicate, "tea")["fact"]

    def retract() -> httpx.Response:
        return robin.post(f"/v1/facts/{fact['fact_id']}/retract", json={})

    with in_scope(database) as merging:
        answer = meanwhile(merging, MERGE, (gone["entity_id"], stays["entity_id"]), retract)
    assert answer.status_code == 200
    again = write(robin, stays["canonical"], predicate, "tea")
    assert again["outcome"] == "created"
    listed = robin.get("/v1/facts", params={"entity": stays["entity_id"]}).json()["facts"]
    assert [found["fact_id"] for found in listed] == [again["fact"]["fact_id"]]


def test_an_end_that_waited_for_a_merge_overlaps_nothing(robin: httpx.Client, database: TestDatabase) -> None:
    gone, stays, predicate = entity(robin), entity(robin), new()
    robin.post("/v1/predicates", json={"name": predicate, "cardinality": "single"})
    first = write(robin, gone["canonical"], predicate, "one", valid_from="2020-01-01T00:00:00Z",
                  valid_to="2021-01-01T00:00:00Z")["fact"]  # fmt: skip
    write(robin, stays["canonical"], predicate, "two", valid_from="2022-01-01T00:00:00Z")

    def reopen() -> httpx.Response:
        return robin.patch(f"/v1/facts/{first['fact_id']}", json={"valid_to": None})

    with in_scope(database) as merging:
        answer = meanwhile(merging, MERGE, (gone["entity_id"], stays["entity_id"]), reopen)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "timeline_occupied")


@pytest.mark.parametrize("status", ["active", "deprecated"])
def test_open_values_of_a_single_predicate_are_put_in_order_by_a_merge(robin: httpx.Client, status: str) -> None:
    one, other, predicate = entity(robin), entity(robin), new()
    made = robin.post("/v1/predicates", json={"name": predicate, "cardinality": "single"}).json()["predicate"]
    old = write(robin, one["canonical"], predicate, "old", valid_from="2020-01-01T00:00:00Z")["fact"]
    write(robin, other["canonical"], predicate, "new", valid_from="2021-01-01T00:00:00Z")
    robin.patch(f"/v1/predicates/{made['predicate_id']}", json={"status": status})
    merged = robin.post(f"/v1/entities/{one['entity_id']}/merge", json={"into": other["entity_id"]})
    assert merged.status_code == 200, merged.text
    assert robin.get(f"/v1/facts/{old['fact_id']}").json()["valid_to"] == "2021-01-01T00:00:00Z"
    reopened = robin.patch(f"/v1/facts/{old['fact_id']}", json={"valid_to": None})
    assert (reopened.status_code, reopened.json()["error"]["code"]) == (409, "timeline_occupied")


def test_many_undecided_values_on_both_sides_can_be_merged(robin: httpx.Client) -> None:
    one, other, predicate = entity(robin), entity(robin), new()
    for side in (one, other):
        facts = [
            {"subject": side["canonical"], "predicate": predicate, "object": {"value": f"{side['canonical']} {i}"}}
            for i in range(250)
        ]
        assert robin.post("/v1/facts/batch", json={"facts": facts}).status_code == 200
    merged = robin.post(f"/v1/entities/{one['entity_id']}/merge", json={"into": other["entity_id"]})
    assert merged.status_code == 200
    listed = robin.get("/v1/facts", params={"entity": other["entity_id"], "limit": 200}).json()["facts"]
    assert all(fact["contradicted"] for fact in listed)


def draft(**fields: Any) -> list[str]:
    """Return forged arguments of write_facts for one fact."""
    names = [{"ref": 1, "norm": fields.pop("subject"), "canonical": "S", "new_id": str(uuid4())}]
    predicates = [{"ref": 1, "norm": fields.pop("predicate"), "name": "P", "new_id": str(uuid4())}]
    fact = {
        "idx": 0, "fact_id": str(uuid4()), "s": 1, "p": 1, "predicate": "P", "value_type": "string", "confidence": 1,
        "source_trust": 0.5, "hlc": "1", "scope": "agent_private", **fields,
    }  # fmt: skip
    return [json.dumps(part) for part in (names, predicates, [fact], [], [])]


def test_whose_a_fact_is_follows_from_the_scope_and_not_from_the_caller(
    wren: httpx.Client, database: TestDatabase
) -> None:
    subject, predicate = new(), new()
    mine = write(wren, subject, predicate, "the secret", scope="agent_private")["fact"]
    with psycopg.connect(database.superuser) as superuser:
        row = superuser.execute("SELECT object_hash FROM graph_facts WHERE fact_id = %s", (mine["fact_id"],)).fetchone()
    assert row is not None
    forged = draft(
        subject=subject, predicate=predicate, value="the secret", value_json='"the secret"', owner_key="wren",
        object_hash="\\x" + row[0].hex(),
    )  # fmt: skip
    with in_scope(database) as connection:
        statement = "SELECT outcome, fact_id::text, agent_id FROM write_facts(%s, %s, %s, %s, %s, true)"
        outcome, fact_id, agent = connection.execute(statement.encode(), forged).fetchone() or ("", "", "")
    assert (outcome, agent) == ("created", "robin")
    assert fact_id != mine["fact_id"]


@pytest.mark.parametrize(
    ("scope_key", "project"), [("acme:other", "default"), ("rival:default", "default"), ("__global__", "default")]
)
def test_a_predicate_cannot_be_planted_in_another_scope(database: TestDatabase, scope_key: str, project: str) -> None:
    with in_scope(database) as connection, pytest.raises(psycopg.errors.CheckViolation):
        connection.execute(
            "INSERT INTO graph_predicates (tenant_id, predicate_id, scope_key, project_id, canonical, canonical_norm, "
            "cardinality, status, created_at, updated_at) "
            "VALUES ('acme', gen_random_uuid(), %s, %s, 'x', 'x', 'single', 'active', now(), now())",
            (scope_key, project),
        )


def test_the_reason_of_a_private_retraction_is_its_agents_own(wren: httpx.Client, database: TestDatabase) -> None:
    fact = write(wren, new(), new(), "mine", scope="agent_private")["fact"]
    wren.post(f"/v1/facts/{fact['fact_id']}/retract", json={"reason": "a secret reason"})
    for agent, seen in (("robin", 0), ("wren", 1)):
        with in_scope(database, agent) as connection:
            statement = "SELECT count(*) FROM fact_retractions WHERE fact_id = %s"
            assert connection.execute(statement, (fact["fact_id"],)).fetchone() == (seen,)


@pytest.mark.parametrize("form", [" {} ", "{}\n", "\t{}"])
def test_an_id_with_white_space_around_it_is_still_an_id(robin: httpx.Client, form: str) -> None:
    made = entity(robin)
    text = form.format(made["entity_id"])
    assert write(robin, text, new(), "anything")["fact"]["subject"]["entity_id"] == made["entity_id"]
    assert robin.get("/v1/facts", params={"entity": text}).status_code == 200
    assert robin.get("/v1/facts", params={"predicate": text}).json()["facts"] == []
    assert [found["entity_id"] for found in robin.get("/v1/entities", params={"name": text}).json()["entities"]] == [
        made["entity_id"]
    ]
