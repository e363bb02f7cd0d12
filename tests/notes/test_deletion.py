"""Deleting a note takes the facts that rest on it alone; recovering it brings back exactly those."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests.conftest import Tenancy, TestDatabase

Clients = Callable[..., httpx.Client]


@pytest.fixture(scope="module", autouse=True)
def tenants(tenancy: Tenancy) -> None:
    tenancy.tenant("acme")


@pytest.fixture
def agent(tenancy: Tenancy, as_key: Clients, tenants: None) -> httpx.Client:
    return as_key(tenancy.key("acme", agent_id="robin"))


@pytest.fixture
def other(tenancy: Tenancy, as_key: Clients, tenants: None) -> httpx.Client:
    return as_key(tenancy.key("acme", agent_id="wren"))


@pytest.fixture
def name() -> str:
    return f"Person {uuid4().hex[:10]}"


def store(client: httpx.Client, content: str, **fields: Any) -> str:
    answer = client.post("/v1/notes", json={"content": content, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()["note"]["note_id"]


def tell(client: httpx.Client, subject: str, value: Any, *notes: str, **fields: Any) -> dict[str, Any]:
    what = value if isinstance(value, dict) else {"value": value}
    body = {"subject": subject, "predicate": "works_at", "object": what, "evidence": list(notes), **fields}
    answer = client.post("/v1/facts", json=body)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()["fact"]


def forget(client: httpx.Client, note: str, **params: Any) -> None:
    answer = client.delete(f"/v1/notes/{note}", params={"reason": "forget it", **params})
    assert answer.status_code == 204, answer.text


def recover(client: httpx.Client, note: str) -> None:
    answer = client.post(f"/v1/notes/{note}/recover", json={"reason": "back"})
    assert answer.status_code == 200, answer.text


def listed(client: httpx.Client, subject: str, **params: Any) -> list[str]:
    answer = client.get("/v1/facts", params={"entity": subject, **params})
    assert answer.status_code == 200, answer.text
    return [fact["fact_id"] for fact in answer.json()["facts"]]


def recalled(client: httpx.Client, query: str, **fields: Any) -> set[str]:
    """The ids of everything that recall answers."""
    answer = client.post("/v1/recall", json={"query": query, "token_budget": 2000, **fields})
    assert answer.status_code in (200, 201), answer.text
    return {item["id"] for item in answer.json()["results"]}


def now(database: TestDatabase) -> str:
    with psycopg.connect(database.superuser) as connection:
        row = connection.execute("SELECT clock_timestamp()").fetchone()
        assert row is not None
        return row[0].isoformat()


def test_facts_that_rest_on_a_note_alone_go_with_it_and_come_back(agent: httpx.Client, name: str) -> None:
    note = store(agent, f"{name} works at Globex.")
    plain = tell(agent, name, "Globex", note)
    edge = tell(agent, name, {"entity": f"Firm of {name}"}, note, predicate="member_of")
    assert {plain["fact_id"], edge["fact_id"], note} <= recalled(agent, f"{name} Globex")

    forget(agent, note)
    assert listed(agent, name) == []
    assert recalled(agent, f"{name} Globex") & {plain["fact_id"], edge["fact_id"], note} == set()
    assert agent.get("/v1/graph/neighbors", params={"entity": name}).json()["neighbors"] == []
    gone = agent.get(f"/v1/facts/{plain['fact_id']}").json()
    assert (gone["retracted_at"] is not None, gone["evidence"]) == (True, [])
    (retraction,) = agent.get(f"/v1/facts/{plain['fact_id']}/history").json()["retractions"]
    assert (retraction["kind"], retraction["reason"], retraction["restored_at"]) == ("note_deleted", "forget it", None)

    recover(agent, note)
    assert set(listed(agent, name)) == {plain["fact_id"], edge["fact_id"]}
    assert {plain["fact_id"], edge["fact_id"], note} <= recalled(agent, f"{name} Globex")
    assert len(agent.get("/v1/graph/neighbors", params={"entity": name}).json()["neighbors"]) == 1
    back = agent.get(f"/v1/facts/{plain['fact_id']}").json()
    same = ("confidence", "valid_from", "valid_to", "evidence", "retracted_at", "mentions")
    assert {key: back[key] for key in same} == {key: plain[key] for key in same}
    history = agent.get(f"/v1/facts/{plain['fact_id']}/history").json()
    assert history["retractions"][0]["restored_at"] is not None
    assert history["closings"] == []


def test_what_was_on_record_stays_readable_as_of_then(agent: httpx.Client, database: TestDatabase, name: str) -> None:
    note = store(agent, f"{name} works at Initech.")
    fact = tell(agent, name, {"entity": f"Initech of {name}"}, note, confidence=0.8)
    before = now(database)
    forget(agent, note)
    between = now(database)
    recover(agent, note)
    after = now(database)

    def neighbors(moment: str) -> int:
        answer = agent.get("/v1/graph/neighbors", params={"entity": name, "as_of": moment})
        return len(answer.json()["neighbors"])

    assert [listed(agent, name, as_of=moment) for moment in (before, between, after)] == [
        [fact["fact_id"]], [], [fact["fact_id"]],
    ]  # fmt: skip
    assert [neighbors(moment) for moment in (before, between, after)] == [1, 0, 1]
    assert [fact["fact_id"] in recalled(agent, name, as_of=moment) for moment in (before, between, after)] == [
        True, False, True,
    ]  # fmt: skip
    then = agent.get(f"/v1/facts/{fact['fact_id']}", params={"as_of": before}).json()
    assert (then["confidence"], then["evidence"]) == (0.8, [note])


def test_a_fact_with_another_live_note_stays_without_the_deleted_one(agent: httpx.Client, name: str) -> None:
    first, second = store(agent, f"{name} is at Globex."), store(agent, f"{name} was seen at Globex.")
    fact = tell(agent, name, "Globex", first, second)
    forget(agent, first)
    shown = agent.get(f"/v1/facts/{fact['fact_id']}").json()
    assert (shown["retracted_at"], shown["evidence"]) == (None, [second])
    history = agent.get(f"/v1/facts/{fact['fact_id']}/history").json()
    assert [one["note_id"] for one in history["evidence"]] == [second]
    again = tell(agent, name, "Globex", second)
    assert (again["fact_id"], again["evidence"]) == (fact["fact_id"], [second])
    forget(agent, second)
    assert listed(agent, name) == []
    # Either of them is enough.
    recover(agent, first)
    assert listed(agent, name) == [fact["fact_id"]]
    recover(agent, second)
    assert set(agent.get(f"/v1/facts/{fact['fact_id']}").json()["evidence"]) == {first, second}


def test_recovering_restores_nothing_else(agent: httpx.Client, name: str) -> None:
    note = store(agent, f"All about {name}.")
    wrong = tell(agent, name, "Hooli", note, predicate="worked_at")
    later = tell(agent, name, "Vim", note, predicate="uses")
    right = tell(agent, name, "Globex", note)
    path = "/v1/facts/{}/retract"
    assert agent.post(path.format(wrong["fact_id"]), json={"reason": "never did"}).status_code == 200
    forget(agent, note)
    # Retracted for good while the note is deleted.
    assert agent.post(path.format(later["fact_id"]), json={"reason": "not any more"}).status_code == 200
    assert agent.post(path.format(later["fact_id"]), json={"reason": "again"}).status_code == 409
    recover(agent, note)
    assert listed(agent, name) == [right["fact_id"]]
    kinds = [one["kind"] for one in agent.get(f"/v1/facts/{later['fact_id']}/history").json()["retractions"]]
    assert kinds == ["note_deleted", "retracted"]


def test_a_fact_asserted_again_lives_by_the_new_assertion(agent: httpx.Client, name: str) -> None:
    note = store(agent, f"{name} works at Globex, they say.")
    first = tell(agent, name, "Globex", note)
    forget(agent, note)
    second = tell(agent, name, "Globex")
    assert second["fact_id"] != first["fact_id"]
    assert listed(agent, name) == [second["fact_id"]]
    recover(agent, note)
    # One belief again: the earlier one, now with both mentions.
    (only,) = agent.get("/v1/facts", params={"entity": name}).json()["facts"]
    assert (only["fact_id"], only["mentions"], only["evidence"]) == (first["fact_id"], 2, [note])


def test_a_timeline_is_put_in_order_when_a_value_comes_back(
    agent: httpx.Client, tenancy: Tenancy, as_key: Clients, name: str
) -> None:
    admin = as_key(tenancy.key("acme", kind="admin", agent_id="boss"), "default")
    predicate = f"lives_in_{uuid4().hex[:8]}"
    note = store(agent, f"{name} lives in Rome.")
    rome = tell(agent, name, "Rome", note, predicate=predicate, valid_from="2020-01-01T00:00:00Z")
    path = f"/v1/predicates/{rome['predicate']['predicate_id']}"
    assert admin.patch(path, json={"status": "active", "cardinality": "single"}).status_code == 200
    forget(agent, note)
    oslo = tell(agent, name, "Oslo", predicate=predicate, valid_from="2022-01-01T00:00:00Z")
    recover(agent, note)
    assert listed(agent, name) == [oslo["fact_id"]]
    back = agent.get(f"/v1/facts/{rome['fact_id']}").json()
    assert (back["retracted_at"], back["valid_to"]) == (None, "2022-01-01T00:00:00Z")


def test_a_contradiction_ends_and_returns_with_the_note(agent: httpx.Client, name: str) -> None:
    note = store(agent, f"{name} works at Hooli, somebody claims.")
    kept = tell(agent, name, "Globex", confidence=0.5)
    claim = tell(agent, name, "Hooli", note, confidence=0.9)
    preferred = {"include_contradicted": False}
    assert listed(agent, name, **preferred) == [claim["fact_id"]]
    forget(agent, note)
    assert listed(agent, name, **preferred) == [kept["fact_id"]]
    assert agent.get(f"/v1/facts/{kept['fact_id']}").json()["contradicted"] is False
    recover(agent, note)
    assert listed(agent, name, **preferred) == [claim["fact_id"]]
    assert agent.get(f"/v1/facts/{kept['fact_id']}").json()["contradicted"] is True


def test_private_facts_of_others_rest_on_the_note_too(agent: httpx.Client, other: httpx.Client, name: str) -> None:
    note = store(agent, f"{name} works at Globex, wren reads.")
    fact = tell(other, name, "Globex", note, scope="agent_private")
    assert listed(agent, name) == []
    forget(agent, note)
    assert listed(other, name) == []
    recover(agent, note)
    assert listed(other, name) == [fact["fact_id"]]


def test_a_purged_note_leaves_its_facts_retracted(agent: httpx.Client, database: TestDatabase, name: str) -> None:
    note = store(agent, f"{name} works at Globex for now.")
    fact = tell(agent, name, "Globex", note)
    forget(agent, note)
    with psycopg.connect(database.superuser) as connection:
        connection.execute("UPDATE memory_notes SET deleted_at = deleted_at - interval '31 days'")
        connection.execute("SELECT set_scope('acme', 'default', '', '{}', '')")
        for step in ("links", "vectors", "notes"):
            connection.execute(f"SELECT purge_{step}(now() - interval '30 days', 1000)".encode())
    assert agent.get(f"/v1/notes/{note}/history").status_code == 404
    shown = agent.get(f"/v1/facts/{fact['fact_id']}").json()
    assert (shown["retracted_at"] is not None, shown["evidence"]) == (True, [])


def test_a_pinned_note_is_deleted_only_by_force(agent: httpx.Client, name: str) -> None:
    note = store(agent, f"{name} must not be forgotten.", pinned=True)
    refused = agent.delete(f"/v1/notes/{note}", params={"reason": "r"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "note_pinned")
    assert refused.json()["error"]["details"]["pinned"] == [note]
    assert agent.get(f"/v1/notes/{note}").status_code == 200
    forget(agent, note, force="true")
    assert agent.get(f"/v1/notes/{note}").status_code == 404
