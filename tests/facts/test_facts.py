"""Facts over HTTP: written, confirmed, ordered on timelines, ended, retracted, and listed for their readers."""

import hashlib
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from app.access import Principal
from app.facts.schemas import FactCreate, ObjectIn
from app.facts.writes import draft_all
from tests.facts.shared import (
    body,
    entity,
    error,
    fact,
    history,
    ids,
    listed,
    new,
    note,
    predicate,
    read,
    spans,
    write,
    year,
)
from tests.service import RunningService

Superuser = psycopg.Connection[dict[str, Any]]
KEPT_ALIKE = (
    "project_id", "agent_id", "scope", "garden_id", "owner_key", "subject_entity_id", "predicate_id",
    "object_entity_id", "confidence", "source_trust", "valid_from", "valid_to", "created_at", "closed_at",
    "retracted_at", "suppression",
)  # fmt: skip


def now() -> datetime:
    return datetime.now(UTC)


def edge(superuser: Superuser, fact_id: str) -> dict[str, Any]:
    columns = ", ".join(KEPT_ALIKE)
    found = superuser.execute(f"SELECT {columns} FROM entity_edges WHERE edge_id = %s".encode(), (fact_id,)).fetchall()
    assert len(found) == 1
    return found[0]


def stored(superuser: Superuser, fact_id: str) -> dict[str, Any]:
    columns = ", ".join(KEPT_ALIKE)
    found = superuser.execute(f"SELECT {columns} FROM graph_facts WHERE fact_id = %s".encode(), (fact_id,)).fetchall()
    assert len(found) == 1
    return found[0]


# Outcomes


def test_a_new_fact_is_created_and_read_back(robin: httpx.Client) -> None:
    subject, target, name = new("Alice"), new("Acme"), new("works at")
    cited = note(robin)
    answer = robin.post(
        "/v1/facts",
        json={
            "subject": {"canonical": subject, "kind": "person"},
            "predicate": name,
            "object": {"entity": {"canonical": target, "kind": "company"}},
            "scope": "org_shared",
            "source": "crm",
            "confidence": 0.75,
            "valid_from": "2024-05-06T07:08:09+02:00",
            "valid_to": "2999-01-01T00:00:00Z",
            "evidence": [cited],
            "derived_from": ["ab" * 32],
        },
    )
    assert answer.status_code == 201
    assert set(answer.json()) == {"fact", "outcome", "superseded", "conflicts"}
    assert (answer.json()["outcome"], answer.json()["superseded"], answer.json()["conflicts"]) == ("created", [], [])
    made = answer.json()["fact"]
    assert (made["subject"]["canonical"], made["subject"]["kind"]) == (subject, "person")
    assert (made["object"]["entity"]["canonical"], made["object"]["entity"]["kind"]) == (target, "company")
    assert (made["predicate"]["name"], made["predicate"]["status"], made["predicate"]["cardinality"]) == (
        name,
        "pending",
        "multi",
    )
    assert (made["scope"], made["source"], made["confidence"], made["agent_id"]) == ("org_shared", "crm", 0.75, "robin")
    assert (made["valid_from"], made["valid_to"]) == ("2024-05-06T05:08:09Z", "2999-01-01T00:00:00Z")
    assert (made["evidence"], made["derived_from"], made["mentions"]) == ([cited], ["ab" * 32], 1)
    assert (made["garden_id"], made["retracted_at"], made["contradicted"]) == (None, None, False)
    assert read(robin, made["fact_id"]) == made


def test_a_fact_without_times_starts_now_and_is_open(robin: httpx.Client) -> None:
    before = now()
    made = fact(robin, new(), new("likes"), "tea")
    assert before <= datetime.fromisoformat(made["valid_from"]) <= now()
    assert made["valid_from"] == made["created_at"]
    assert (made["valid_to"], made["closed_at"], made["confidence"], made["scope"]) == (
        None,
        None,
        1.0,
        "project_shared",
    )


def test_said_again_the_row_is_reused_with_the_running_mean_of_confidence(robin: httpx.Client) -> None:
    subject, name = new(), new("likes")
    first = fact(robin, subject, name, "tea", confidence=1.0)
    for number, (confidence, mean) in enumerate([(0.5, 0.75), (0.3, 0.6), (0.9, 0.675)], start=2):
        again = write(robin, subject.upper(), f" {name} ", "tea", confidence=confidence)
        assert again["outcome"] == "reused"
        assert again["fact"]["fact_id"] == first["fact_id"]
        assert again["fact"]["mentions"] == number
        assert again["fact"]["confidence"] == pytest.approx(mean)
        assert again["fact"]["fact_hash"] == first["fact_hash"]
    assert ids(listed(robin, entity=subject)) == [first["fact_id"]]


def test_evidence_is_appended_once_for_each_note(robin: httpx.Client) -> None:
    subject, name = new(), new("likes")
    one, two = note(robin), note(robin)
    made = fact(robin, subject, name, "tea", evidence=[one, one])
    assert made["evidence"] == [one]
    again = write(robin, subject, name, "tea", evidence=[two, one])
    assert (again["outcome"], again["fact"]["evidence"]) == ("reused", [one, two])
    assert [item["note_id"] for item in history(robin, made["fact_id"])["evidence"]] == [one, two]


def test_the_entities_of_a_fact_are_mentioned_by_its_notes(robin: httpx.Client, superuser: Superuser) -> None:
    cited = note(robin)
    made = fact(robin, new(), new("knows"), {"entity": new()}, evidence=[cited])
    found = superuser.execute("SELECT entity_id FROM note_entity_mentions WHERE note_id = %s", (cited,)).fetchall()
    assert {str(row["entity_id"]) for row in found} == {
        made["subject"]["entity_id"],
        made["object"]["entity"]["entity_id"],
    }


def test_another_agent_confirms_a_shared_fact(robin: httpx.Client, wren: httpx.Client) -> None:
    subject, name = new(), new("likes")
    first = fact(robin, subject, name, "tea")
    again = write(wren, subject, name, "tea")
    assert (again["outcome"], again["fact"]["fact_id"], again["fact"]["agent_id"]) == (
        "reused",
        first["fact_id"],
        "robin",
    )


@pytest.mark.parametrize("field", ["scope", "subject", "object"])
def test_what_differs_in_place_or_value_is_another_fact(robin: httpx.Client, field: str) -> None:
    base = body(new(), predicate(robin)["name"], "tea")
    other = {"scope": "public", "subject": new(), "object": {"value": "coffee"}}[field]
    first = robin.post("/v1/facts", json=base).json()["fact"]
    second = robin.post("/v1/facts", json={**base, field: other}).json()
    assert second["outcome"] == "created"
    assert second["fact"]["fact_id"] != first["fact_id"]
    assert read(robin, first["fact_id"])["mentions"] == 1


def test_put_is_post(robin: httpx.Client) -> None:
    sent = body(new(), new("likes"), "tea")
    made = robin.put("/v1/facts", json=sent)
    again = robin.put("/v1/facts", json=sent)
    assert (made.status_code, again.status_code) == (201, 200)
    assert again.json()["fact"]["fact_id"] == made.json()["fact"]["fact_id"]
    assert robin.post("/v1/facts", json=sent).json()["fact"]["mentions"] == 3


def test_synonyms_of_fields_and_scopes_mean_the_same(robin: httpx.Client) -> None:
    subject, name = new(), new("likes")
    first = fact(robin, subject, name, "tea", valid_to="2999-01-01T00:00:00Z")
    for sent in (
        {"entity": subject, "relation": name, "scope": "team", "valid_until": "2999-01-01T00:00:00Z"},
        {"entity_uri": subject, "predicate": name, "scope": "team_shared"},
        {"subject": first["subject"]["entity_id"], "predicate": first["predicate"]["predicate_id"]},
        {"subject": {"entity_id": first["subject"]["entity_id"]}, "relation": name.upper()},
    ):
        again = robin.post("/v1/facts", json={"object": {"value": "tea"}, **sent}).json()
        assert again["fact"]["fact_id"] == first["fact_id"]
    assert fact(robin, subject, name, "tea", scope="company")["scope"] == "org_shared"
    assert fact(robin, subject, name, "tea", scope="local")["scope"] == "agent_private"


def test_an_idempotency_key_writes_once(robin: httpx.Client) -> None:
    sent, headers = body(new(), new("likes"), "tea"), {"Idempotency-Key": uuid4().hex}
    first = robin.post("/v1/facts", json=sent, headers=headers)
    second = robin.post("/v1/facts", json=sent, headers=headers)
    assert (first.status_code, second.status_code) == (201, 201)
    assert second.json() == first.json()
    assert read(robin, first.json()["fact"]["fact_id"])["mentions"] == 1
    other = robin.post("/v1/facts", json={**sent, "confidence": 0.5}, headers=headers)
    assert other.status_code in (409, 422)


def test_of_many_writers_of_one_new_fact_one_makes_it(keys: dict[str, str], service: RunningService) -> None:
    sent, start = body(new(), new("knows"), {"entity": new()}), threading.Barrier(8)

    def send(_: int) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {keys['robin']}"}
        with httpx.Client(base_url=service.url, headers=headers, timeout=60, verify=False) as client:
            start.wait()
            answer = client.post("/v1/facts", json=sent)
            return answer.status_code, answer.json()["fact"]["fact_id"]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, range(8)))
    assert sorted(status for status, _ in answers) == [200] * 7 + [201]
    assert len({fact_id for _, fact_id in answers}) == 1


def test_of_many_writers_of_one_timeline_one_value_stays_open(
    keys: dict[str, str], service: RunningService, robin: httpx.Client
) -> None:
    subject, name, start = new(), predicate(robin, cardinality="single")["name"], threading.Barrier(8)

    def send(number: int) -> int:
        headers = {"Authorization": f"Bearer {keys['robin']}"}
        with httpx.Client(base_url=service.url, headers=headers, timeout=60, verify=False) as client:
            start.wait()
            return client.post("/v1/facts", json=body(subject, name, number)).status_code

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(send, range(8))) == [201] * 8
    line = spans(listed(robin, entity=subject, include_inactive=True))
    assert len(line) == 8
    assert [end for _, end in line] == [begin for begin, _ in line[1:]] + [None]


# Single-valued timelines


@pytest.fixture
def single(robin: httpx.Client) -> str:
    return predicate(robin, cardinality="single", status="active")["name"]


def values(client: httpx.Client, subject: str, **params: Any) -> list[tuple[Any, str, str | None]]:
    """What a timeline holds in order: value, from, to."""
    found = [
        (item["object"].get("value"), item["valid_from"], item["valid_to"])
        for item in listed(client, entity=subject, **params)
        if item["retracted_at"] is None
    ]
    return sorted(found, key=lambda item: item[1])


def test_a_new_value_ends_the_one_before(robin: httpx.Client, single: str) -> None:
    subject, cited = new(), note(robin)
    old = fact(robin, subject, single, "Bern", valid_from=year(2020))
    answer = write(robin, subject, single, "Basel", valid_from=year(2022), evidence=[cited])
    assert answer["superseded"] == [old["fact_id"]]
    closed = read(robin, old["fact_id"])
    assert (closed["valid_to"], closed["retracted_at"]) == (year(2022), None)
    assert closed["closed_at"] == answer["fact"]["created_at"]
    assert ids(listed(robin, entity=subject)) == [answer["fact"]["fact_id"]]
    told = history(robin, answer["fact"]["fact_id"])
    assert ids(told["chain"]) == [old["fact_id"], answer["fact"]["fact_id"]]
    (link,) = told["supersessions"]
    assert (link["from_fact_id"], link["to_fact_id"]) == (old["fact_id"], answer["fact"]["fact_id"])
    assert (link["note_id"], link["effective_at"]) == (cited, year(2022))
    assert [item["previous_valid_to"] for item in history(robin, old["fact_id"])["closings"]] == [None]


def test_a_back_dated_value_ends_where_the_next_one_starts(robin: httpx.Client, single: str) -> None:
    subject = new()
    late = fact(robin, subject, single, "Basel", valid_from=year(2022))
    early = write(robin, subject, single, "Bern", valid_from=year(2020))
    assert early["fact"]["valid_to"] == year(2022)
    assert early["superseded"] == []
    assert read(robin, late["fact_id"])["valid_to"] is None
    between = write(robin, subject, single, "Zug", valid_from=year(2021))
    assert between["superseded"] == [early["fact"]["fact_id"]]
    assert values(robin, subject, include_inactive=True) == [
        ("Bern", year(2020), year(2021)),
        ("Zug", year(2021), year(2022)),
        ("Basel", year(2022), None),
    ]
    assert [item["object"]["value"] for item in history(robin, late["fact_id"])["chain"]] == ["Bern", "Zug", "Basel"]


def test_the_order_of_arrival_does_not_matter(robin: httpx.Client, single: str) -> None:
    orders = [(2020, 2021, 2022), (2022, 2021, 2020), (2021, 2022, 2020), (2020, 2022, 2021)]
    lines: list[list[tuple[Any, str, str | None]]] = []
    for order in orders:
        subject = new()
        for number in order:
            write(robin, subject, single, f"value of {number}", valid_from=year(number))
        lines.append(values(robin, subject, include_inactive=True))
    assert lines[0] == [
        ("value of 2020", year(2020), year(2021)),
        ("value of 2021", year(2021), year(2022)),
        ("value of 2022", year(2022), None),
    ]
    assert all(line == lines[0] for line in lines)


def test_a_value_of_the_future_leaves_the_present_one_active_until_then(robin: httpx.Client, single: str) -> None:
    subject = new()
    present = fact(robin, subject, single, "Bern", valid_from=year(2020))
    coming = write(robin, subject, single, "Basel", valid_from=year(2999))
    assert coming["superseded"] == [present["fact_id"]]
    assert ids(listed(robin, entity=subject)) == [present["fact_id"]]
    assert read(robin, present["fact_id"])["valid_to"] == year(2999)
    assert ids(listed(robin, entity=subject, valid_at="2999-01-02T00:00:00Z")) == [coming["fact"]["fact_id"]]
    middle = write(robin, subject, single, "Zug")
    assert middle["superseded"] == [present["fact_id"]]
    assert middle["fact"]["valid_to"] == year(2999)
    assert ids(listed(robin, entity=subject)) == [middle["fact"]["fact_id"]]


def test_an_equal_start_replaces_and_the_old_value_is_kept_as_corrected(robin: httpx.Client, single: str) -> None:
    subject, cited = new(), note(robin)
    wrong = fact(robin, subject, single, "Bern", valid_from=year(2020), confidence=0.8)
    right = write(robin, subject, single, "Basel", valid_from=year(2020), evidence=[cited])
    assert right["superseded"] == [wrong["fact_id"]]
    taken = read(robin, wrong["fact_id"])
    assert (taken["confidence"], taken["valid_to"]) == (0, None)
    assert taken["retracted_at"] == right["fact"]["created_at"]
    told = history(robin, wrong["fact_id"])
    (retraction,) = told["retractions"]
    assert (retraction["kind"], retraction["confidence_before"], retraction["retracted_by"]) == (
        "corrected",
        0.8,
        "robin",
    )
    assert {link["note_id"] for link in told["supersessions"]} == {cited}
    assert ids(listed(robin, entity=subject)) == [right["fact"]["fact_id"]]
    assert ids(listed(robin, entity=subject, include_inactive=True)) == [right["fact"]["fact_id"], wrong["fact_id"]]


def test_a_value_with_an_end_keeps_it_unless_the_next_one_starts_earlier(robin: httpx.Client, single: str) -> None:
    subject = new()
    assert fact(robin, subject, single, "a", valid_from=year(2010), valid_to=year(2012))["valid_to"] == year(2012)
    fact(robin, subject, single, "b", valid_from=year(2014))
    short = write(robin, subject, single, "c", valid_from=year(2013), valid_to=year(2020))
    assert (short["fact"]["valid_to"], short["superseded"]) == (year(2014), [])
    assert values(robin, subject, include_inactive=True) == [
        ("a", year(2010), year(2012)),
        ("c", year(2013), year(2014)),
        ("b", year(2014), None),
    ]


def test_the_same_value_again_within_its_time_is_reused(robin: httpx.Client, single: str) -> None:
    subject = new()
    first = fact(robin, subject, single, "Bern", valid_from=year(2020))
    for fields in ({}, {"valid_from": year(2020)}, {"valid_from": year(2021)}):
        again = write(robin, subject, single, "Bern", **fields)
        assert (again["outcome"], again["fact"]["fact_id"], again["superseded"]) == ("reused", first["fact_id"], [])
    assert values(robin, subject) == [("Bern", year(2020), None)]


def test_a_value_that_returns_is_a_new_fact(robin: httpx.Client, single: str) -> None:
    subject = new()
    first = fact(robin, subject, single, "Bern", valid_from=year(2020))
    fact(robin, subject, single, "Basel", valid_from=year(2021))
    back = write(robin, subject, single, "Bern", valid_from=year(2022))
    assert back["outcome"] == "created"
    assert back["fact"]["fact_id"] != first["fact_id"]
    assert [item[0] for item in values(robin, subject, include_inactive=True)] == ["Bern", "Basel", "Bern"]


def test_timelines_of_scopes_and_agents_do_not_touch(robin: httpx.Client, wren: httpx.Client, single: str) -> None:
    subject = new()
    shared = fact(robin, subject, single, "Bern", valid_from=year(2020))
    for client, fields in ((robin, {"scope": "public"}), (robin, {"scope": "local"}), (wren, {"scope": "local"})):
        assert write(client, subject, single, "Basel", **fields)["superseded"] == []
    assert read(robin, shared["fact_id"])["valid_to"] is None


# Values side by side


def test_values_of_a_multi_valued_predicate_stand_side_by_side(robin: httpx.Client) -> None:
    subject, name = new(), predicate(robin, cardinality="multi")["name"]
    one = write(robin, subject, name, "tea")
    two = write(robin, subject, name, "coffee")
    assert (two["superseded"], two["conflicts"], two["fact"]["contradicted"]) == ([], [], False)
    assert set(ids(listed(robin, entity=subject))) == {one["fact"]["fact_id"], two["fact"]["fact_id"]}


def test_an_earlier_start_adds_the_time_before(robin: httpx.Client) -> None:
    subject, name = new(), predicate(robin)["name"]
    held = fact(robin, subject, name, "tea", valid_from=year(2020))
    before = write(robin, subject, name, "tea", valid_from=year(2019))
    assert before["outcome"] == "created"
    assert (before["fact"]["valid_from"], before["fact"]["valid_to"]) == (year(2019), year(2020))
    assert read(robin, held["fact_id"])["valid_from"] == year(2020)


SPANS: list[list[tuple[int, int | None]]] = [
    [(2020, None), (2019, None)],
    [(2020, 2022), (2021, 2024)],
    [(2020, 2022), (2021, None)],
    [(2020, 2022), (2018, 2030)],
    [(2020, 2021), (2022, 2023), (2024, 2025), (2019, None)],
    [(2020, 2021), (2022, 2023), (2024, 2025), (2020, 2026)],
    [(2020, 2021), (2022, 2023), (2018, 2022)],
    [(2020, None), (2010, 2015), (2012, None)],
    [(2020, 2022), (2020, 2021)],
    [(2020, 2021), (2021, 2022)],
    [(2022, 2023), (2020, 2021), (2015, 2030), (2012, None)],
]


@pytest.mark.parametrize("asserted", SPANS, ids=str)
@pytest.mark.parametrize("kind", ["value", "entity"])
def test_times_of_one_belief_unite_and_never_overlap(
    robin: httpx.Client, asserted: list[tuple[int, int | None]], kind: str
) -> None:
    subject, name, target = new(), predicate(robin)["name"], {kind: new()}
    for start, end in asserted:
        write(robin, subject, name, target, valid_from=year(start), valid_to=None if end is None else year(end))
    held = [
        (int(begin[:4]), 9999 if end is None else int(end[:4]))
        for begin, end in spans(listed(robin, entity=subject, include_inactive=True))
    ]
    assert all(left[1] <= right[0] for left, right in pairwise(held)), held
    covered = {number for start, end in held for number in range(start, end)}
    assert covered == {number for start, end in asserted for number in range(start, end or 9999)}


def test_a_fact_without_times_confirms_one_with_a_known_end(robin: httpx.Client) -> None:
    subject, name = new(), predicate(robin)["name"]
    held = fact(robin, subject, name, "tea", valid_from=year(2020), valid_to=year(2999))
    again = write(robin, subject, name, "tea")
    assert (again["outcome"], again["fact"]["fact_id"], again["fact"]["valid_to"]) == (
        "reused",
        held["fact_id"],
        year(2999),
    )


def test_a_second_value_by_a_pending_predicate_is_a_conflict(robin: httpx.Client, superuser: Superuser) -> None:
    subject, name = new(), new("born in")
    one = write(robin, subject, name, "Bern")
    two = write(robin, subject, name, "Basel")
    assert (one["conflicts"], one["fact"]["contradicted"]) == ([], False)
    assert (len(two["conflicts"]), two["fact"]["contradicted"], two["superseded"]) == (1, True, [])
    assert read(robin, one["fact"]["fact_id"])["contradicted"] is True
    row = superuser.execute("SELECT * FROM fact_conflicts WHERE conflict_id = %s", (two["conflicts"][0],)).fetchone()
    assert row is not None
    assert (str(row["fact_a"]), str(row["fact_b"]), row["status"]) == (
        one["fact"]["fact_id"],
        two["fact"]["fact_id"],
        "open",
    )


def test_what_is_not_believed_at_all_is_no_conflict(robin: httpx.Client, superuser: Superuser) -> None:
    subject, name = new(), new("born in")
    faded = write(robin, subject, name, "Bern")["fact"]["fact_id"]
    superuser.execute("UPDATE graph_facts SET confidence = 0 WHERE fact_id = %s", (faded,))
    other = write(robin, subject, name, "Basel")
    assert (other["conflicts"], other["fact"]["contradicted"]) == ([], False)


@pytest.mark.parametrize("fields", [{"scope": "public"}, {"valid_to": year(2010)}], ids=str)
def test_what_cannot_both_be_believed_at_once_is_no_conflict(robin: httpx.Client, fields: dict[str, Any]) -> None:
    subject, name = new(), new("born in")
    write(robin, subject, name, "Bern", valid_from=year(2015))
    other = write(
        robin, subject, name, "Basel", valid_from=year(2005) if "valid_to" in fields else year(2016), **fields
    )
    assert (other["conflicts"], other["fact"]["contradicted"]) == ([], False)


def test_entities_by_a_pending_predicate_are_no_conflict(robin: httpx.Client) -> None:
    subject, name = new(), new("knows")
    write(robin, subject, name, {"entity": new()})
    assert write(robin, subject, name, {"entity": new()})["conflicts"] == []


def test_evidence_shows_only_notes_that_the_reader_may_read(robin: httpx.Client, wren: httpx.Client) -> None:
    subject, name = new(), new("born in")
    private, shared = note(robin, scope="agent_private"), note(robin)
    made = fact(robin, subject, name, "Bern", evidence=[private, shared])
    other = write(robin, subject, name, "Basel", evidence=[private], derived_from=[made["fact_hash"]])
    assert set(made["evidence"]) == set(read(robin, made["fact_id"])["evidence"]) == {private, shared}
    answers = {
        "one": wren.get(f"/v1/facts/{made['fact_id']}"),
        "list": wren.get("/v1/facts", params={"entity": subject}),
        "then": wren.get("/v1/facts", params={"entity": subject, "as_of": now().isoformat()}),
        "history": wren.get(f"/v1/facts/{made['fact_id']}/history"),
        "provenance": wren.get(f"/v1/facts/{other['fact']['fact_id']}/provenance"),
        "conflict": wren.get(f"/v1/conflicts/{other['conflicts'][0]}"),
        "conflicts": wren.get("/v1/conflicts", params={"entity": subject}),
        "recall": wren.post("/v1/recall", json={"query": "Bern", "entity": subject, "include_contradicted": True}),
        "again": wren.post("/v1/facts", json=body(subject, name, "Bern")),
        "batch": wren.post("/v1/facts/batch", json={"facts": [body(subject, name, "Basel")]}),
        "card": wren.get(f"/v1/entities/{made['subject']['entity_id']}/card"),
        "retracted": wren.post(f"/v1/facts/{other['fact']['fact_id']}/retract", json={}),
    }
    for place, answer in answers.items():
        assert private not in answer.text, place
    for place in ("one", "list", "then", "history", "conflict", "conflicts", "recall", "again"):
        assert shared in answers[place].text, place
    assert set(read(robin, made["fact_id"])["evidence"]) == {private, shared}, "its own agent sees both"
    robin.delete(f"/v1/notes/{shared}", params={"reason": "wrong"}).raise_for_status()
    assert read(robin, made["fact_id"])["evidence"] == [private]


# Denied


def deny(client: httpx.Client, subject: str, name: str, value: Any, **fields: Any) -> httpx.Response:
    return client.post("/v1/facts", json=body(subject, name, value, confidence=0, **fields))


@pytest.mark.parametrize("value", ["tea", {"entity": "Place of Tea"}], ids=str)
def test_a_confidence_of_zero_retracts_what_is_believed(
    robin: httpx.Client, wren: httpx.Client, superuser: Superuser, value: Any
) -> None:
    subject, name = new(), new("likes")
    made = fact(robin, subject, name, value, confidence=0.9)
    answer = deny(wren, subject.upper(), name, value)
    assert answer.status_code == 200, answer.text
    denied = answer.json()
    assert (denied["outcome"], denied["superseded"], denied["conflicts"]) == ("retracted", [], [])
    assert denied["fact"]["fact_id"] == made["fact_id"]
    assert (denied["fact"]["confidence"], denied["fact"]["mentions"]) == (0, 1)
    assert denied["fact"] == read(robin, made["fact_id"])
    assert listed(robin, entity=subject) == []
    history = robin.get(f"/v1/facts/{made['fact_id']}/history").json()["retractions"]
    assert [(item["kind"], item["retracted_by"], item["confidence_before"]) for item in history] == [
        ("retracted", "wren", 0.9)
    ]
    event = superuser.execute(
        "SELECT details FROM audit_log WHERE event_type = 'fact_write' AND details -> 'fact_ids' ? %s "
        "ORDER BY event_id DESC LIMIT 1",
        (made["fact_id"],),
    ).fetchone()
    assert event is not None
    counts = {count: event["details"][count] for count in ("created", "reused", "retracted")}
    assert counts == {"created": 0, "reused": 0, "retracted": 1}
    again = fact(robin, subject, name, value)
    assert again["fact_id"] != made["fact_id"]


def test_a_denial_ends_a_conflict_instead_of_moving_a_mean(robin: httpx.Client, wren: httpx.Client) -> None:
    subject, name = new(), new("born in")
    bern = fact(robin, subject, name, "Bern", confidence=0.9)
    basel = fact(robin, subject, name, "Basel", confidence=0.6)
    assert ids(listed(robin, entity=subject, include_contradicted=False)) == [bern["fact_id"]]
    assert deny(wren, subject, name, "Basel").json()["fact"]["fact_id"] == basel["fact_id"]
    (held,) = listed(robin, entity=subject)
    assert (held["fact_id"], held["confidence"], held["contradicted"]) == (bern["fact_id"], 0.9, False)


@pytest.mark.parametrize("prior", [None, "other value", "private", "ended", "retracted"])
def test_a_new_fact_of_confidence_zero_is_refused(robin: httpx.Client, wren: httpx.Client, prior: str | None) -> None:
    subject, name = new(), new("likes")
    if prior == "other value":
        fact(robin, subject, name, "milk")
    elif prior == "private":
        fact(wren, subject, name, "tea", scope="agent_private")
    elif prior == "ended":
        fact(robin, subject, name, "tea", valid_from=year(2001), valid_to=year(2002))
    elif prior == "retracted":
        deny(robin, subject, name, fact(robin, subject, name, "tea")["object"]["value"]).raise_for_status()
    before = listed(robin, entity=subject, include_inactive=True)
    answer = deny(robin, subject, name, "tea")
    assert error(answer) == (400, "confidence_zero")
    assert answer.json()["error"]["message"].startswith("confidence: ")
    assert listed(robin, entity=subject, include_inactive=True) == before


def test_denials_in_a_batch_come_first_and_count_once(robin: httpx.Client) -> None:
    subject, name = new(), new("likes")
    made = fact(robin, subject, name, "tea")
    sent = [
        body(subject, name, "tea", evidence=[note(robin)]),
        body(subject, name, "tea", confidence=0, evidence=[note(robin)]),
        body(subject, name, "tea", confidence=0),
        body(subject, name, "milk", confidence=0),
    ]
    results = batch(robin, sent, atomic=False).json()["results"]
    assert [item.get("outcome") for item in results] == ["created", "retracted", "retracted", None]
    assert results[3]["error"]["code"] == "confidence_zero"
    assert {item["fact"]["fact_id"] for item in results[1:3]} == {made["fact_id"]}
    (held,) = listed(robin, entity=subject)
    assert (held["fact_id"], held["evidence"]) == (results[0]["fact"]["fact_id"], sent[0]["evidence"])
    assert read(robin, made["fact_id"])["evidence"] == [], "a denial is no evidence"
    assert error(batch(robin, sent))[0] == 400


def test_the_pipeline_denies_nothing() -> None:
    who = Principal(tenant_id="acme", project_id="default", agent_id="robin", key_id="pipeline", kind="agent")
    said = [
        FactCreate(subject="Ann", predicate="likes", object=ObjectIn(entity="tea"), confidence=confidence)
        for confidence in (0.0, 0.4)
    ]
    drafts, refused = draft_all(who, said)
    assert ([item["idx"] for item in drafts.facts], refused) == ([1], ["entities[0]: confidence_zero"])


# Taken back and ended


def test_a_retracted_fact_is_history(robin: httpx.Client) -> None:
    subject, name = new(), new("likes")
    made = fact(robin, subject, name, "tea", confidence=0.7)
    answer = robin.post(f"/v1/facts/{made['fact_id']}/retract", json={"reason": "a mistake"})
    assert answer.status_code == 200
    taken = answer.json()["fact"]
    assert (taken["confidence"], taken["valid_to"], taken["retracted_at"] is None) == (0, None, False)
    assert listed(robin, entity=subject) == []
    assert ids(listed(robin, entity=subject, include_inactive=True)) == [made["fact_id"]]
    (retraction,) = history(robin, made["fact_id"])["retractions"]
    assert (retraction["kind"], retraction["reason"], retraction["retracted_by"], retraction["confidence_before"]) == (
        "retracted",
        "a mistake",
        "robin",
        0.7,
    )
    again = robin.post(f"/v1/facts/{made['fact_id']}/retract", json={})
    assert error(again) == (409, "already_retracted")


def test_a_retracted_fact_can_be_asserted_anew(robin: httpx.Client, single: str) -> None:
    for name in (new("likes"), single):
        subject = new()
        first = fact(robin, subject, name, "tea", valid_from=year(2020))
        robin.post(f"/v1/facts/{first['fact_id']}/retract", json={})
        again = write(robin, subject, name, "tea", valid_from=year(2020))
        assert (again["outcome"], again["fact"]["mentions"], again["superseded"]) == ("created", 1, [])
        assert again["fact"]["fact_id"] != first["fact_id"]


def test_everything_under_a_subject_a_predicate_and_a_scope_is_retracted(robin: httpx.Client) -> None:
    subject, name, other = new(), new("likes"), new("hates")
    gone = {fact(robin, subject, name, value)["fact_id"] for value in ("tea", "milk")}
    gone.add(fact(robin, subject, name, "beer", valid_from=year(2010), valid_to=year(2011))["fact_id"])
    kept = {
        fact(robin, subject, other, "tea")["fact_id"],
        fact(robin, subject, name, "tea", scope="public")["fact_id"],
        fact(robin, new(), name, "tea")["fact_id"],
    }
    answer = robin.post("/v1/facts/retract", json={"subject": subject, "predicate": name, "reason": "all wrong"})
    assert answer.status_code == 200
    assert set(answer.json()["retracted"]) == gone
    assert all(read(robin, fact_id)["retracted_at"] for fact_id in gone)
    assert all(read(robin, fact_id)["retracted_at"] is None for fact_id in kept)
    repeated = robin.post("/v1/facts/retract", json={"subject": subject, "predicate": name})
    assert (repeated.status_code, repeated.json()["retracted"]) == (200, [])


def test_retracting_under_unknown_names_retracts_nothing(robin: httpx.Client) -> None:
    answer = robin.post("/v1/facts/retract", json={"subject": new(), "predicate": new()})
    assert (answer.status_code, answer.json()["retracted"]) == (200, [])


def test_a_conflict_ends_with_the_fact_that_was_in_it(robin: httpx.Client) -> None:
    subject, name = new(), new("born in")
    one, two = fact(robin, subject, name, "Bern"), fact(robin, subject, name, "Basel")
    robin.post(f"/v1/facts/{two['fact_id']}/retract", json={})
    assert read(robin, one["fact_id"])["contradicted"] is False


def test_a_fact_is_ended_and_opened_again(robin: httpx.Client) -> None:
    subject = new()
    made = fact(robin, subject, new("likes"), "tea", valid_from=year(2020))
    path = f"/v1/facts/{made['fact_id']}"
    ended = robin.patch(path, json={"valid_to": "2021-01-01T01:00:00+01:00"})
    assert (ended.status_code, ended.json()["fact"]["valid_to"], ended.json()["outcome"]) == (200, year(2021), "ended")
    assert ended.json()["fact"]["closed_at"] is not None
    assert listed(robin, entity=subject) == []
    assert ids(listed(robin, entity=subject, valid_at="2020-06-01T00:00:00Z")) == [made["fact_id"]]
    opened = robin.patch(path, json={"valid_to": None})
    assert (opened.status_code, opened.json()["fact"]["valid_to"], opened.json()["outcome"]) == (200, None, "reopened")
    assert ids(listed(robin, entity=subject)) == [made["fact_id"]]
    assert [item["previous_valid_to"] for item in history(robin, made["fact_id"])["closings"]] == [None, year(2021)]


def test_a_fact_cannot_be_ended_inside_the_next_one(robin: httpx.Client, single: str) -> None:
    subject = new()
    first = fact(robin, subject, single, "Bern", valid_from=year(2020))
    fact(robin, subject, single, "Basel", valid_from=year(2022))
    path = f"/v1/facts/{first['fact_id']}"
    for valid_to in (None, year(2023), "2022-01-01T00:00:00.000001Z"):
        assert error(robin.patch(path, json={"valid_to": valid_to})) == (409, "timeline_occupied")
    assert read(robin, first["fact_id"])["valid_to"] == year(2022)
    assert robin.patch(path, json={"valid_to": year(2021)}).json()["fact"]["valid_to"] == year(2021)
    assert robin.patch(path, json={"valid_to": year(2022)}).json()["fact"]["valid_to"] == year(2022)


def test_a_belief_cannot_be_stretched_over_its_own_later_fact(robin: httpx.Client) -> None:
    subject, name = new(), predicate(robin)["name"]
    first = fact(robin, subject, name, "tea", valid_from=year(2020), valid_to=year(2021))
    fact(robin, subject, name, "tea", valid_from=year(2022))
    fact(robin, subject, name, "milk", valid_from=year(2021))
    path = f"/v1/facts/{first['fact_id']}"
    assert error(robin.patch(path, json={"valid_to": None})) == (409, "timeline_occupied")
    assert robin.patch(path, json={"valid_to": year(2022)}).status_code == 200


def test_a_retracted_fact_cannot_be_ended(robin: httpx.Client) -> None:
    made = fact(robin, new(), new("likes"), "tea", valid_from=year(2020))
    robin.post(f"/v1/facts/{made['fact_id']}/retract", json={})
    refused = robin.patch(f"/v1/facts/{made['fact_id']}", json={"valid_to": year(2021)})
    assert error(refused) == (409, "already_retracted")


# Batches


def batch(client: httpx.Client, facts: list[dict[str, Any]], **fields: Any) -> httpx.Response:
    return client.post("/v1/facts/batch", json={"facts": facts, **fields})


def test_a_batch_answers_a_result_for_each_in_order(robin: httpx.Client) -> None:
    subject, name, cited = new(), predicate(robin)["name"], note(robin)
    sent = [body(subject, name, number, evidence=[cited]) for number in range(5)]
    answer = batch(robin, sent)
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [item["index"] for item in results] == list(range(5))
    assert [item["fact"]["object"]["value"] for item in results] == list(range(5))
    assert {item["outcome"] for item in results} == {"created"}
    assert all(item["fact"] == read(robin, item["fact"]["fact_id"]) for item in results)
    assert {item["outcome"] for item in batch(robin, sent).json()["results"]} == {"reused"}


def test_duplicates_within_a_batch_are_one_fact(robin: httpx.Client) -> None:
    subject, name, one, two = new(), new("likes"), note(robin), note(robin)
    results = batch(
        robin,
        [
            body(subject, name, "tea", evidence=[one], confidence=1.0),
            body(f"  {subject.upper()} ", name.upper(), "tea", evidence=[two, one], confidence=0.5),
            body(subject, name, "tea", confidence=0.3),
        ],
    ).json()["results"]
    assert [item["outcome"] for item in results] == ["created", "reused", "reused"]
    assert len({item["fact"]["fact_id"] for item in results}) == 1
    (held,) = listed(robin, entity=subject)
    assert (held["mentions"], held["confidence"]) == (3, pytest.approx(0.6))
    assert sorted(held["evidence"]) == sorted([one, two])


def test_a_timeline_within_a_batch_is_put_in_order(robin: httpx.Client, single: str) -> None:
    subject = new()
    sent = [body(subject, single, number, valid_from=year(number)) for number in (2021, 2019, 2022, 2020, 2022)]
    sent[4]["object"]["value"] = "corrected"
    results = batch(robin, sent).json()["results"]
    assert [item["outcome"] for item in results] == ["created"] * 5
    assert values(robin, subject, include_inactive=True) == [
        (2019, year(2019), year(2020)),
        (2020, year(2020), year(2021)),
        (2021, year(2021), year(2022)),
        ("corrected", year(2022), None),
    ]


def test_values_without_times_in_a_batch_follow_each_other(robin: httpx.Client, single: str) -> None:
    subject = new()
    batch(robin, [body(subject, single, number) for number in range(4)])
    line = values(robin, subject, include_inactive=True)
    assert [item[0] for item in line] == [0, 1, 2, 3]
    assert [item[2] for item in line] == [item[1] for item in line[1:]] + [None]


def test_overlapping_times_of_one_belief_in_a_batch_unite(robin: httpx.Client) -> None:
    subject, name = new(), predicate(robin)["name"]
    times = [(2020, 2021), (2022, 2023), (2019, 2030), (2018, 2020)]
    batch(robin, [body(subject, name, "tea", valid_from=year(a), valid_to=year(b)) for a, b in times])
    held = spans(listed(robin, entity=subject, include_inactive=True))
    assert held[0][0] == year(2018)
    assert held[-1][1] == year(2030)
    assert all(left[1] == right[0] for left, right in pairwise(held))


def test_conflicts_within_a_batch_are_recorded(robin: httpx.Client) -> None:
    subject, name = new(), new("born in")
    results = batch(robin, [body(subject, name, "Bern"), body(subject, name, "Basel")]).json()["results"]
    assert [len(item["conflicts"]) for item in results] == [0, 1]
    assert {item["contradicted"] for item in listed(robin, entity=subject)} == {True}


BROKEN: list[dict[str, Any]] = [
    {"confidence": 2},
    {"object": {}},
    {"evidence": [str(uuid4())]},
    {"garden_id": str(uuid4())},
    {"subject": str(uuid4())},
    {"predicate": str(uuid4())},
    {"surprise": 1},
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda item: next(iter(item)))
def test_one_error_stops_an_atomic_batch_and_names_its_index(robin: httpx.Client, broken: dict[str, Any]) -> None:
    subjects = [new() for _ in range(4)]
    sent = [body(subject, new("likes"), "tea") for subject in subjects]
    sent[2] |= broken
    refused = batch(robin, sent)
    assert 400 <= refused.status_code < 500
    assert refused.json()["error"]["details"]["index"] == 2
    assert refused.json()["error"]["message"].startswith("facts[2]: ")
    assert all(robin.get("/v1/entities", params={"name": name}).json()["entities"] == [] for name in subjects)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda item: next(iter(item)))
def test_one_error_leaves_the_others_of_a_loose_batch(robin: httpx.Client, broken: dict[str, Any]) -> None:
    subjects = [new() for _ in range(4)]
    name = new("likes")
    sent = [body(subject, name, "tea") for subject in subjects]
    sent[2] |= broken
    answer = batch(robin, sent, atomic=False)
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [item["index"] for item in results] == [0, 1, 2, 3]
    assert ["error" in item for item in results] == [False, False, True, False]
    assert set(results[2]) == {"index", "error"}
    assert set(results[2]["error"]) == {"code", "message", "details"}
    assert [item["subject"]["canonical"] for item in listed(robin, predicate=name)] == [
        subjects[3],
        subjects[1],
        subjects[0],
    ]
    assert robin.get("/v1/entities", params={"name": subjects[2]}).json()["entities"] == []


def test_a_loose_batch_of_errors_alone_writes_nothing(robin: httpx.Client) -> None:
    answer = batch(robin, [body(new(), new(), "tea", confidence=7), body("", new(), "tea")], atomic=False)
    assert answer.status_code == 200
    assert ["error" in item for item in answer.json()["results"]] == [True, True]


def test_a_thousand_facts_fit_in_a_batch_and_one_more_does_not(robin: httpx.Client) -> None:
    subject, name = new(), predicate(robin)["name"]
    sent = [body(subject, name, number) for number in range(1001)]
    assert error(batch(robin, sent)) == (400, "batch_too_large")
    assert listed(robin, entity=subject) == []
    answer = batch(robin, sent[:1000])
    assert answer.status_code == 200
    assert len({item["fact"]["fact_id"] for item in answer.json()["results"]}) == 1000
    assert listed(robin, entity=subject)[0]["object"]["value"] == 999


def test_a_thousand_values_of_one_timeline_fit_in_a_batch(robin: httpx.Client, single: str) -> None:
    subject = new()
    answer = batch(robin, [body(subject, single, number) for number in range(1000)])
    assert answer.status_code == 200, answer.text[:300]
    assert [item["object"]["value"] for item in listed(robin, entity=subject)] == [999]


def test_an_empty_batch_is_refused(robin: httpx.Client) -> None:
    assert error(batch(robin, []))[0] == 400


def test_an_idempotency_key_writes_a_batch_once(robin: httpx.Client) -> None:
    sent = {"facts": [body(new(), new("likes"), "tea")]}
    headers = {"Idempotency-Key": uuid4().hex}
    first = robin.post("/v1/facts/batch", json=sent, headers=headers)
    second = robin.post("/v1/facts/batch", json=sent, headers=headers)
    assert first.json() == second.json()
    assert read(robin, first.json()["results"][0]["fact"]["fact_id"])["mentions"] == 1


# Found again


def test_facts_are_found_by_each_filter(robin: httpx.Client) -> None:
    subject, target, name = new(), new(), new("knows")
    source = new("source")
    known = fact(robin, subject, name, {"entity": target}, source=source, confidence=0.4)
    liked = fact(robin, subject, new("likes"), "tea", scope="public", confidence=0.9)
    entity_id = known["subject"]["entity_id"]
    assert ids(listed(robin, entity=subject)) == [liked["fact_id"], known["fact_id"]]
    assert ids(listed(robin, entity=entity_id)) == [liked["fact_id"], known["fact_id"]]
    assert ids(listed(robin, entity_uri=subject.upper())) == [liked["fact_id"], known["fact_id"]]
    assert ids(listed(robin, object=target)) == [known["fact_id"]]
    assert ids(listed(robin, object=known["object"]["entity"]["entity_id"])) == [known["fact_id"]]
    assert ids(listed(robin, predicate=name)) == [known["fact_id"]]
    assert ids(listed(robin, relation=name)) == [known["fact_id"]]
    assert ids(listed(robin, predicate=known["predicate"]["predicate_id"])) == [known["fact_id"]]
    assert ids(listed(robin, entity=subject, scope="public")) == [liked["fact_id"]]
    assert ids(listed(robin, entity=subject, scope="team")) == [known["fact_id"]]
    assert ids(listed(robin, source=source)) == [known["fact_id"]]
    assert ids(listed(robin, entity=subject, min_confidence=0.4)) == [liked["fact_id"], known["fact_id"]]
    assert ids(listed(robin, entity=subject, min_confidence=0.41)) == [liked["fact_id"]]
    assert ids(listed(robin, entity=subject, predicate=name, object=target, min_confidence=0.5)) == []


@pytest.mark.parametrize("name", ["entity", "entity_uri", "object", "predicate", "relation", "source"])
def test_a_filter_by_an_unknown_name_finds_nothing(robin: httpx.Client, name: str) -> None:
    assert listed(robin, **{name: new()}) == []
    assert listed(robin, **{name: str(uuid4())}) == []


def test_a_filter_by_an_alias_finds_what_it_means(robin: httpx.Client) -> None:
    subject, target, name, short = new(), new(), new("knows"), new("short")
    made = fact(robin, subject, name, {"entity": target})
    robin.post(f"/v1/entities/{made['subject']['entity_id']}/aliases", json={"alias": f"{short} s"})
    robin.post(f"/v1/entities/{made['object']['entity']['entity_id']}/aliases", json={"alias": f"{short} o"})
    robin.post(f"/v1/predicates/{made['predicate']['predicate_id']}/aliases", json={"alias": f"{short} p"})
    for params in ({"entity": f"{short} s"}, {"object": f"{short} o"}, {"predicate": f"{short} p"}):
        assert ids(listed(robin, **params)) == [made["fact_id"]]


def test_valid_at_looks_at_another_moment_of_the_world(robin: httpx.Client, single: str) -> None:
    subject = new()
    first = fact(robin, subject, single, "Bern", valid_from=year(2010))
    second = fact(robin, subject, single, "Basel", valid_from=year(2020))
    moments = {
        "2009-12-31T23:59:59Z": [],
        year(2010): [first["fact_id"]],
        "2019-12-31T23:59:59.999999Z": [first["fact_id"]],
        year(2020): [second["fact_id"]],
        "2020-01-01T01:00:00+02:00": [first["fact_id"]],
    }
    for moment, expected in moments.items():
        assert ids(listed(robin, entity=subject, valid_at=moment)) == expected


def test_as_of_looks_at_what_was_known_then(robin: httpx.Client, single: str) -> None:
    subject, cited = new(), note(robin)
    before = now().isoformat()
    first = fact(robin, subject, single, "Bern", valid_from=year(2010), confidence=0.6)
    between = now().isoformat()
    write(robin, subject, single, "Bern", confidence=0.6, evidence=[cited])
    second = fact(robin, subject, single, "Basel", valid_from=year(2020))
    later = now().isoformat()
    robin.post(f"/v1/facts/{second['fact_id']}/retract", json={})
    assert listed(robin, entity=subject) == []
    assert listed(robin, entity=subject, as_of=before) == []
    (then,) = listed(robin, entity=subject, as_of=between)
    assert (then["fact_id"], then["valid_to"], then["closed_at"], then["evidence"]) == (
        first["fact_id"],
        None,
        None,
        [],
    )
    (after,) = listed(robin, entity=subject, as_of=later)
    assert (after["fact_id"], after["confidence"], after["retracted_at"]) == (second["fact_id"], 1.0, None)
    assert ids(listed(robin, entity=subject, as_of=later, valid_at=year(2015))) == [first["fact_id"]]
    assert listed(robin, entity=subject, as_of=between, valid_at=year(2005)) == []
    assert ids(listed(robin, entity=subject, as_of=between, include_inactive=True)) == [first["fact_id"]]
    assert robin.get(f"/v1/facts/{first['fact_id']}", params={"as_of": before}).status_code == 404
    assert read(robin, first["fact_id"], as_of=between)["valid_to"] is None
    assert read(robin, second["fact_id"], as_of=later)["confidence"] == 1.0


def test_as_of_keeps_what_was_sure_enough_then(robin: httpx.Client) -> None:
    subject = new()
    made = fact(robin, subject, new("likes"), "tea", confidence=0.8)
    then = now().isoformat()
    robin.post(f"/v1/facts/{made['fact_id']}/retract", json={})
    assert ids(listed(robin, entity=subject, as_of=then, min_confidence=0.5)) == [made["fact_id"]]


def test_as_of_sees_every_end_a_fact_has_had(robin: httpx.Client) -> None:
    made = fact(robin, new(), new("likes"), "tea", valid_from=year(2010), valid_to=year(2011))
    path = f"/v1/facts/{made['fact_id']}"
    seen: list[tuple[str, str | None]] = [(now().isoformat(), year(2011))]
    for valid_to in (year(2012), None, year(2013)):
        robin.patch(path, json={"valid_to": valid_to})
        seen.append((now().isoformat(), valid_to))
    for moment, valid_to in seen:
        assert read(robin, made["fact_id"], as_of=moment)["valid_to"] == valid_to


def test_as_of_the_future_is_refused_and_needs_its_scope(
    robin: httpx.Client, tenancy: Any, as_key: Callable[..., httpx.Client]
) -> None:
    assert error(robin.get("/v1/facts", params={"as_of": year(2999)})) == (400, "as_of_future")
    for text in ("yesterday", "2026-01-01T00:00:00"):
        assert error(robin.get("/v1/facts", params={"as_of": text})) == (400, "as_of_invalid_timestamp")
    plain = as_key(tenancy.key("acme", agent_id="plain", scopes=["facts:read"]))
    assert error(plain.get("/v1/facts", params={"as_of": year(2020)})) == (403, "missing_scope")
    assert plain.get("/v1/facts").status_code == 200
    assert error(plain.post("/v1/facts", json=body(new(), new(), "tea"))) == (403, "missing_scope")


def test_only_the_preferred_of_contradicting_facts_is_listed_on_request(robin: httpx.Client) -> None:
    subject, name = new(), new("born in")
    weak = fact(robin, subject, name, "Bern", confidence=0.5)
    strong = fact(robin, subject, name, "Basel", confidence=0.9)
    assert len(listed(robin, entity=subject)) == 2
    assert ids(listed(robin, entity=subject, include_contradicted=False)) == [strong["fact_id"]]
    equal = new()
    fact(robin, equal, name, "Bern")
    later = fact(robin, equal, name, "Basel")
    assert ids(listed(robin, entity=equal, include_contradicted=False)) == [later["fact_id"]]
    robin.post(f"/v1/facts/{strong['fact_id']}/retract", json={})
    assert ids(listed(robin, entity=subject, include_contradicted=False)) == [weak["fact_id"]]


def test_a_fact_that_has_ended_is_not_preferred_to_one_that_is_valid(robin: httpx.Client) -> None:
    subject, name = new(), new("born in")
    strong = fact(robin, subject, name, "Basel", confidence=0.9, valid_from=year(2010))
    weak = fact(robin, subject, name, "Bern", confidence=0.5, valid_from=year(2010))
    robin.patch(f"/v1/facts/{strong['fact_id']}", json={"valid_to": year(2015)})
    assert ids(listed(robin, entity=subject)) == [weak["fact_id"]]
    assert ids(listed(robin, entity=subject, include_contradicted=False)) == [weak["fact_id"]]


def test_values_that_come_to_overlap_by_a_new_end_contradict_each_other(robin: httpx.Client) -> None:
    subject, name = new(), new("born in")
    first = fact(robin, subject, name, "Bern", valid_from=year(2010), valid_to=year(2015))
    second = fact(robin, subject, name, "Basel", valid_from=year(2016))
    assert second["contradicted"] is False
    robin.patch(f"/v1/facts/{first['fact_id']}", json={"valid_to": None})
    assert {item["contradicted"] for item in listed(robin, entity=subject)} == {True}


def test_a_list_pages_to_its_end_without_gap_or_repetition(robin: httpx.Client) -> None:
    subject, name = new(), predicate(robin)["name"]
    made = [fact(robin, subject, name, number)["fact_id"] for number in range(3)]
    made += [
        item["fact"]["fact_id"]
        for item in batch(robin, [body(subject, name, number) for number in range(3, 8)]).json()["results"]
    ]
    ended = fact(robin, subject, name, "ends", valid_from=year(2020), valid_to=year(2999))["fact_id"]
    for extra, expected in (({}, [*made, ended]), ({"include_inactive": True}, [*made, ended])):
        found: list[str] = []
        cursor = None
        while True:
            params = {"entity": subject, "limit": 3, **extra, **({"cursor": cursor} if cursor else {})}
            page = robin.get("/v1/facts", params=params).json()
            found += ids(page["facts"])
            cursor = page["next_cursor"]
            if cursor is None:
                break
            assert len(page["facts"]) == 3
        assert found == expected[::-1]
    other = robin.get("/v1/facts", params={"entity": subject, "limit": 3}).json()["next_cursor"]
    refused = robin.get("/v1/facts", params={"entity": new(), "limit": 3, "cursor": other})
    assert error(refused) == (400, "cursor_invalid")


# For whom they are


def test_private_facts_are_for_their_agent_alone(
    robin: httpx.Client, wren: httpx.Client, admin: httpx.Client, superuser: Superuser
) -> None:
    subject, name = new(), new("likes")
    mine = fact(robin, subject, name, "tea", scope="agent_private")
    theirs = write(wren, subject, name, "tea", scope="agent_private")
    assert theirs["outcome"] == "created"
    assert theirs["fact"]["fact_id"] != mine["fact_id"]
    assert ids(listed(robin, entity=subject)) == [mine["fact_id"]]
    assert ids(listed(wren, entity=subject)) == [theirs["fact"]["fact_id"]]
    assert listed(admin, entity=subject) == []
    path = f"/v1/facts/{mine['fact_id']}"
    for client in (wren, admin):
        assert client.get(path).status_code == 404
        assert client.get(f"{path}/history").status_code == 404
        assert client.patch(path, json={"valid_to": year(2999)}).status_code == 404
        assert client.post(f"{path}/retract", json={}).status_code == 404
    wren.post("/v1/facts/retract", json={"subject": subject, "predicate": name, "scope": "agent_private"})
    assert stored(superuser, mine["fact_id"])["retracted_at"] is None
    assert stored(superuser, theirs["fact"]["fact_id"])["retracted_at"] is not None
    assert write(robin, subject, name, "tea", scope="agent_private")["outcome"] == "reused"


def garden(client: httpx.Client, **fields: Any) -> str:
    answer = client.post("/v1/gardens", json={"slug": f"g{uuid4().hex[:8]}", **fields})
    assert answer.status_code == 201
    return answer.json()["garden"]["garden_id"]


def test_facts_of_a_garden_are_for_its_members(robin: httpx.Client, wren: httpx.Client, admin: httpx.Client) -> None:
    place, subject, name = garden(robin), new(), new("likes")
    made = fact(robin, subject, name, "tea", garden_id=place)
    assert made["garden_id"] == place
    path = f"/v1/facts/{made['fact_id']}"
    assert wren.get(path).status_code == 404
    assert wren.get(f"{path}/history").status_code == 404
    assert listed(wren, entity=subject) == []
    assert error(wren.get("/v1/facts", params={"garden": place})) == (403, "garden_forbidden")
    assert error(wren.post("/v1/facts", json=body(subject, name, "milk", garden_id=place))) == (403, "garden_forbidden")
    assert wren.post(f"{path}/retract", json={}).status_code == 404
    assert ids(listed(admin, entity=subject)) == [made["fact_id"]]
    robin.put(f"/v1/gardens/{place}/members/wren", json={"role": "reader"})
    assert ids(listed(wren, garden=place)) == [made["fact_id"]]
    assert error(wren.post("/v1/facts", json=body(subject, name, "milk", garden_id=place))) == (403, "garden_forbidden")
    assert error(wren.post(f"{path}/retract", json={})) == (403, "garden_forbidden")
    assert error(wren.patch(path, json={"valid_to": year(2999)})) == (403, "garden_forbidden")
    robin.put(f"/v1/gardens/{place}/members/wren", json={"role": "writer"})
    assert write(wren, subject, name, "tea", garden_id=place)["outcome"] == "reused"
    assert wren.patch(path, json={"valid_to": year(2999)}).status_code == 200
    assert wren.post(f"{path}/retract", json={}).status_code == 200


def test_the_same_fact_in_two_gardens_and_outside_is_three(robin: httpx.Client) -> None:
    subject, name = new(), new("likes")
    places: list[dict[str, Any]] = [{}, {"garden_id": garden(robin)}, {"garden_id": garden(robin)}]
    made = [write(robin, subject, name, "tea", **place) for place in places]
    assert [item["outcome"] for item in made] == ["created"] * 3
    assert all(write(robin, subject, name, "tea", **place)["outcome"] == "reused" for place in places)


def test_unknown_gardens_and_those_of_another_scope_are_refused(robin: httpx.Client, rival: httpx.Client) -> None:
    strange = garden(rival)
    for place in (str(uuid4()), strange):
        assert robin.post("/v1/facts", json=body(new(), new(), "tea", garden_id=place)).status_code == 404
        assert robin.get("/v1/facts", params={"garden": place}).status_code == 404
    mine = garden(robin)
    refused = robin.post("/v1/facts", json=body(new(), new(), "tea", garden_id=mine, scope="public"))
    assert refused.status_code == 422


def test_other_tenants_and_projects_see_and_touch_nothing(
    robin: httpx.Client, rival: httpx.Client, elsewhere: httpx.Client
) -> None:
    subject, name, target = new(), new("knows"), new()
    made = fact(robin, subject, name, {"entity": target}, scope="public")
    path = f"/v1/facts/{made['fact_id']}"
    for client in (rival, elsewhere):
        assert client.get(path).status_code == 404
        assert client.get(f"{path}/history").status_code == 404
        assert client.patch(path, json={"valid_to": year(2999)}).status_code == 404
        assert client.post(f"{path}/retract", json={}).status_code == 404
        for params in ({}, {"entity": subject}, {"object": target}, {"predicate": name}):
            assert made["fact_id"] not in ids(listed(client, **params))
        for sent in (
            {"subject": made["subject"]["entity_id"]},
            {"object": {"entity": made["subject"]["entity_id"]}},
            {"predicate": made["predicate"]["predicate_id"]},
        ):
            assert client.post("/v1/facts", json={**body(new(), new(), "tea"), **sent}).status_code == 404
        retracted = client.post(
            "/v1/facts/retract",
            json={"subject": made["subject"]["entity_id"], "predicate": name, "scope": "public"},
        )
        assert retracted.json()["retracted"] == []
        own = write(client, subject, name, {"entity": target}, scope="public")
        assert own["outcome"] == "created"
        assert own["fact"]["subject"]["entity_id"] != made["subject"]["entity_id"]
    assert read(robin, made["fact_id"]) == made


# Values


VALUES: list[tuple[Any, str | None, Any, str]] = [
    ("tea", None, "tea", "string"),
    ("tea", "string", "tea", "string"),
    ("tea", "text", "tea", "text"),
    ("x" * 600, None, "x" * 600, "text"),
    ("x" * 65536, "text", "x" * 65536, "text"),
    (7, None, 7, "number"),
    (1.0, None, 1, "number"),
    (-0.0, None, 0, "number"),
    (2**53 + 1, None, 2**53 + 1, "number"),
    (10**30 + 7, None, 10**30 + 7, "number"),
    (-(2**64), None, -(2**64), "number"),
    (1e-7, None, 1e-7, "number"),
    (1.5e300, "number", 1.5e300, "number"),
    (0.1, None, 0.1, "number"),
    (5e-324, None, 5e-324, "number"),
    (True, None, True, "boolean"),
    (False, "boolean", False, "boolean"),
    ("2026-01-31T12:00:00+02:00", "datetime", "2026-01-31T10:00:00Z", "datetime"),
    ("2026-01-31T12:00:00.25Z", "datetime", "2026-01-31T12:00:00.250000Z", "datetime"),
    (None, None, None, "null"),
    (None, "null", None, "null"),
    ('quotes " \\ / \n \u2028 é 😀 \u007f', None, 'quotes " \\ / \n \u2028 é 😀 \u007f', "string"),
]


@pytest.mark.parametrize(("sent", "kind", "shown", "shown_kind"), VALUES, ids=lambda item: str(item)[:24])
def test_a_value_comes_back_as_what_it_is(
    robin: httpx.Client, sent: Any, kind: str | None, shown: Any, shown_kind: str
) -> None:
    target = {"value": sent, **({} if kind is None else {"type": kind})}
    made = fact(robin, new(), new("has"), target)
    assert made["object"] == {"value": shown, "type": shown_kind}
    assert type(made["object"]["value"]) is type(shown)
    assert read(robin, made["fact_id"])["object"] == made["object"]
    assert listed(robin, entity=made["subject"]["entity_id"])[0]["object"] == made["object"]


SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"value": 1}, {"value": 1.0}),
    ({"value": 0}, {"value": -0.0}),
    ({"value": 100}, {"value": 1e2}),
    ({"value": 10**21}, {"value": 1e21}),
    ({"value": "tea"}, {"value": "tea", "type": "text"}),
    ({"entity": "Grand  Hotel"}, {"value": " grand hotel", "type": "ref"}),
    ({"value": "user:Alice Smith", "type": "ref"}, {"entity": "user:alice-smith"}),
    ({"value": "Grand Hotel", "type": "ref"}, {"v": "Grand Hotel", "type": "ref"}),
    ({"value": 7}, {"v": 7}),
    (
        {"value": "2026-01-31T12:00:00Z", "type": "datetime"},
        {"value": "2026-01-31T13:00:00+01:00", "type": "datetime"},
    ),
]


@pytest.mark.parametrize(("one", "other"), SAME, ids=str)
def test_two_ways_to_write_a_value_are_one_belief(
    robin: httpx.Client, one: dict[str, Any], other: dict[str, Any]
) -> None:
    subject, name = new(), new("has")
    first = fact(robin, subject, name, one)
    again = write(robin, subject, name, other)
    assert (again["outcome"], again["fact"]["fact_id"]) == ("reused", first["fact_id"])


def test_alike_values_of_other_types_are_other_beliefs(robin: httpx.Client) -> None:
    subject, name = new(), predicate(robin)["name"]
    alike: list[dict[str, Any]] = [
        {"value": "1"}, {"value": 1}, {"value": True}, {"value": "true"}, {"value": None}, {"value": "null"},
        {"value": "1 "}, {"entity": "1"},
        {"value": "2026-01-31T12:00:00Z"}, {"value": "2026-01-31T12:00:00Z", "type": "datetime"},
    ]  # fmt: skip
    assert [write(robin, subject, name, target)["outcome"] for target in alike] == ["created"] * len(alike)


# Hashes


def canonical(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def moment(text: str) -> str:
    at = datetime.fromisoformat(text).astimezone(UTC)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


HASHED: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"value": "tea"}, {}, {"type": "string", "v": "tea"}),
    ({"value": 'quotes " \\ / \n\t\x01\x1f \u2028 é 😀 \x7f'}, {}, {
        "type": "string", "v": 'quotes " \\ / \n\t\x01\x1f \u2028 é 😀 \x7f'}),
    ({"value": 7.0}, {"confidence": 0.5, "source": 'the "CRM" é'}, {"type": "number", "v": 7}),
    ({"value": 0.25}, {"valid_from": "2024-05-06T07:08:09.1+02:00"}, {"type": "number", "v": 0.25}),
    ({"value": True}, {"confidence": 0.125}, {"type": "boolean", "v": True}),
    ({"value": None}, {"scope": "local"}, {"type": "null", "v": None}),
    ({"value": "2026-01-31T12:00:00+02:00", "type": "datetime"}, {"valid_from": "0987-01-02T03:04:05Z"}, {
        "type": "datetime", "v": "2026-01-31T10:00:00Z"}),
    ({"entity": "  The   GRAND Hotel "}, {"valid_from": year(2020), "valid_to": year(2021)}, {
        "type": "ref", "v": "the grand hotel"}),
    ({"entity": "place:Grand Hotel"}, {"confidence": 0.1}, {"type": "ref", "v": "place:grand-hotel"}),
]  # fmt: skip


@pytest.mark.parametrize(("target", "fields", "hashed"), HASHED, ids=lambda item: str(item)[:40])
def test_a_fact_is_cited_by_the_hash_of_its_canonical_form(
    robin: httpx.Client, target: dict[str, Any], fields: dict[str, Any], hashed: dict[str, Any]
) -> None:
    tag = uuid4().hex[:8]
    made = fact(robin, f"  Älice   {tag} ", f"Likes \t {tag}", target, **fields)
    confidence = fields.get("confidence", 1)
    document = {
        "confidence": int(confidence) if confidence == int(confidence) else confidence,
        "entity": f"älice {tag}",
        "relation": f"Likes {tag}",
        "scope": made["scope"],
        "source": fields.get("source"),
        "ts": moment(made["valid_from"]),
        "value": hashed,
    }
    assert made["fact_hash"] == hashlib.sha256(canonical(document)).hexdigest()


@pytest.mark.parametrize(
    ("value", "written"),
    [(1e-7, "1e-7"), (1e21, "1e+21"), (1.5e-5, "0.000015"), (-1.25e-9, "-1.25e-9"), (1.2345678901234568e20,
     "123456789012345680000"), (5e-324, "5e-324"), (1.7976931348623157e308, "1.7976931348623157e+308"), (1e-6,
     "0.000001")],
    ids=str,
)  # fmt: skip
def test_numbers_are_hashed_in_their_shortest_form(robin: httpx.Client, value: float, written: str) -> None:
    tag = new()
    made = fact(robin, tag, tag, value, confidence=1e-7)
    form = (
        f'{{"confidence":1e-7,"entity":"{tag}","relation":"{tag}","scope":"project_shared","source":null,'
        f'"ts":"{moment(made["valid_from"])}","value":{{"type":"number","v":{written}}}}}'
    )
    assert made["fact_hash"] == hashlib.sha256(form.encode()).hexdigest()


def test_the_hash_uses_the_canonical_names_and_stays(robin: httpx.Client) -> None:
    named, alias, relation = entity(robin), new("alias"), predicate(robin)
    robin.post(f"/v1/entities/{named['entity_id']}/aliases", json={"alias": alias})
    robin.post(f"/v1/predicates/{relation['predicate_id']}/aliases", json={"alias": f"{alias} p"})
    made = fact(robin, alias, f"{alias} p", "tea", valid_from=year(2020), confidence=1)
    document = {
        "confidence": 1, "entity": named["canonical"], "relation": relation["name"], "scope": "project_shared",
        "source": None, "ts": "2020-01-01T00:00:00.000000Z", "value": {"type": "string", "v": "tea"},
    }  # fmt: skip
    assert made["fact_hash"] == hashlib.sha256(canonical(document)).hexdigest()
    write(robin, alias, f"{alias} p", "tea", confidence=0.2)
    robin.patch(f"/v1/facts/{made['fact_id']}", json={"valid_to": year(2021)})
    robin.post(f"/v1/facts/{made['fact_id']}/retract", json={})
    assert read(robin, made["fact_id"])["fact_hash"] == made["fact_hash"]


# Edges


def in_step(superuser: Superuser, fact_id: str) -> dict[str, Any]:
    """The edge of a fact, after a look that both say the same."""
    row, line = stored(superuser, fact_id), edge(superuser, fact_id)
    assert {name: line[name] for name in KEPT_ALIKE} == {name: row[name] for name in KEPT_ALIKE}
    return line


def test_the_edge_of_a_fact_keeps_in_step_with_it(robin: httpx.Client, superuser: Superuser, single: str) -> None:
    subject = new()
    made = fact(robin, subject, single, {"entity": new()}, valid_from=year(2010), confidence=0.9)
    assert in_step(superuser, made["fact_id"])["confidence"] == 0.9
    write(robin, subject, single, {"entity": made["object"]["entity"]["entity_id"]}, confidence=0.5)
    assert in_step(superuser, made["fact_id"])["confidence"] == pytest.approx(0.7)
    later = fact(robin, subject, single, {"entity": new()}, valid_from=year(2012))
    assert in_step(superuser, made["fact_id"])["valid_to"] == datetime(2012, 1, 1, tzinfo=UTC)
    replaced = fact(robin, subject, single, {"entity": new()}, valid_from=year(2012))
    assert in_step(superuser, later["fact_id"])["retracted_at"] is not None
    robin.patch(f"/v1/facts/{replaced['fact_id']}", json={"valid_to": year(2013)})
    assert in_step(superuser, replaced["fact_id"])["closed_at"] is not None
    robin.patch(f"/v1/facts/{replaced['fact_id']}", json={"valid_to": None})
    assert in_step(superuser, replaced["fact_id"])["valid_to"] is None
    robin.post(f"/v1/facts/{replaced['fact_id']}/retract", json={})
    assert in_step(superuser, replaced["fact_id"])["confidence"] == 0


def test_edges_keep_in_step_when_times_of_a_belief_unite(robin: httpx.Client, superuser: Superuser) -> None:
    subject, target, name = new(), {"entity": new()}, predicate(robin)["name"]
    for start, end in ((2020, 2021), (2022, 2023), (2019, 2030)):
        write(robin, subject, name, target, valid_from=year(start), valid_to=year(end))
    found = ids(listed(robin, entity=subject, include_inactive=True))
    assert len(found) == 3
    assert all(in_step(superuser, fact_id) for fact_id in found)


def test_a_fact_with_a_value_has_no_edge(robin: httpx.Client, superuser: Superuser) -> None:
    made = fact(robin, new(), new("likes"), {"value": "file:x"})
    found = superuser.execute("SELECT FROM entity_edges WHERE edge_id = %s", (made["fact_id"],)).fetchall()
    assert found == []


def test_a_ref_names_an_entity_and_makes_an_edge(robin: httpx.Client, superuser: Superuser) -> None:
    target = f"file:Some Dir/{new()}"
    made = fact(robin, new(), new("reads"), {"value": target, "type": "ref"})
    assert set(made["object"]) == {"entity"}
    assert made["object"]["entity"]["canonical"] == target.lower().replace(" ", "-")
    assert in_step(superuser, made["fact_id"])
    assert ids(listed(robin, object=target)) == [made["fact_id"]]
    by_id = write(
        robin, made["subject"]["canonical"], made["predicate"]["name"],
        {"value": made["object"]["entity"]["entity_id"], "type": "ref"},
    )  # fmt: skip
    assert (by_id["outcome"], by_id["fact"]["fact_id"]) == ("reused", made["fact_id"])


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ({"value": 7, "type": "ref"}, "invalid_request"),
        ({"value": None, "type": "ref"}, "invalid_request"),
        ({"value": "  ", "type": "ref"}, "invalid_entity"),
        ({"value": "user:", "type": "ref"}, "invalid_entity"),
        ({"value": "x" * 600, "type": "ref"}, "invalid_entity"),
        ({"value": "a", "v": "a"}, "invalid_request"),
        ({"entity": "a", "v": "a"}, "invalid_request"),
    ],
    ids=lambda item: str(item)[:40],
)
def test_a_ref_that_names_nothing_is_refused(robin: httpx.Client, target: dict[str, Any], code: str) -> None:
    answer = robin.post("/v1/facts", json={**body(new(), new("reads"), "x"), "object": target})
    assert error(answer) == (400, code)
    assert answer.json()["error"]["message"].startswith("object")


def test_derivations_are_kept_as_they_were_when_the_fact_was_made(robin: httpx.Client) -> None:
    source = fact(robin, new(), new("likes"), "tea")
    subject, name = new(), new("likes")
    made = fact(robin, subject, name, "tea", derived_from=[source["fact_hash"], source["fact_hash"]])
    assert made["derived_from"] == [source["fact_hash"]]
    again = write(robin, subject, name, "tea", derived_from=["cd" * 32])
    assert (again["outcome"], again["fact"]["derived_from"]) == ("reused", [source["fact_hash"]])


def test_a_moment_within_the_clocks_reach_is_valid_at_once(robin: httpx.Client) -> None:
    subject, name = new(), predicate(robin)["name"]
    soon = (now() + timedelta(hours=1)).isoformat()
    coming = fact(robin, subject, name, "soon", valid_from=soon)
    present = fact(robin, subject, name, "now")
    assert ids(listed(robin, entity=subject)) == [present["fact_id"]]
    assert set(ids(listed(robin, entity=subject, valid_at=soon))) == {coming["fact_id"], present["fact_id"]}
