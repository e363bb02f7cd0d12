"""Conflicts: detected, shown only to callers who see both facts, and resolved by a winner or a new value."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.facts.shared import (
    Superuser,
    body,
    error,
    fact,
    garden,
    history,
    ids,
    listed,
    new,
    note,
    now,
    predicate,
    provenance,
    read,
    refusal,
    retracted_as,
    tombstone,
    write,
    year,
)


class Dispute:
    """Two values for one thing, and the conflict between them."""

    def __init__(self, client: httpx.Client, one: Any = "Bern", two: Any = "Basel", **fields: Any) -> None:
        first, second = fields.pop("first", {}), fields.pop("second", {})
        self.client = client
        self.subject, self.predicate = new("person"), new("born in")
        self.one = fact(client, self.subject, self.predicate, one, **fields, **first)
        answer = write(client, self.subject, self.predicate, two, **fields, **second)
        self.two: dict[str, Any] = answer["fact"]
        (self.conflict_id,) = answer["conflicts"]
        self.path = f"/v1/conflicts/{self.conflict_id}"

    @property
    def sides(self) -> list[str]:
        return [self.one["fact_id"], self.two["fact_id"]]

    def shown(self, client: httpx.Client | None = None) -> dict[str, Any]:
        answer = (client or self.client).get(self.path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def resolve(self, client: httpx.Client | None = None, **fields: Any) -> httpx.Response:
        return (client or self.client).post(f"{self.path}/resolve", json=fields)

    def resolved(self, client: httpx.Client | None = None, **fields: Any) -> dict[str, Any]:
        answer = self.resolve(client, **fields)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def current(self) -> list[tuple[Any, float]]:
        """What is believed of it now, and how surely."""
        return [(item["object"]["value"], item["confidence"]) for item in listed(self.client, entity=self.subject)]


def conflicts(client: httpx.Client, **params: Any) -> list[dict[str, Any]]:
    answer = client.get("/v1/conflicts", params={"limit": 200, **params})
    assert answer.status_code == 200, answer.text
    assert set(answer.json()) == {"conflicts", "next_cursor"}
    return answer.json()["conflicts"]


def numbers(found: list[dict[str, Any]]) -> list[str]:
    return [item["conflict_id"] for item in found]


# Found


def test_a_conflict_shows_both_facts_and_which_is_preferred(robin: httpx.Client) -> None:
    made = Dispute(robin, first={"confidence": 0.9}, second={"confidence": 0.4})
    shown = made.shown()
    assert set(shown) == {
        "conflict_id", "fact_a", "fact_b", "status", "preferred", "winner", "detected_at", "resolved_at",
        "resolved_by", "resolution_note", "facts",
    }  # fmt: skip
    assert (shown["conflict_id"], shown["status"]) == (made.conflict_id, "open")
    assert [shown["fact_a"], shown["fact_b"]] == made.sides
    assert shown["preferred"] == made.one["fact_id"]
    assert shown["detected_at"] == made.two["created_at"]
    assert [shown[name] for name in ("winner", "resolved_at", "resolved_by", "resolution_note")] == [None] * 4
    assert shown["facts"] == [read(robin, fact_id) for fact_id in made.sides]


def test_the_later_one_is_preferred_of_two_held_equally(robin: httpx.Client) -> None:
    made = Dispute(robin)
    assert made.shown()["preferred"] == made.two["fact_id"]


def test_conflicts_are_listed_newest_first_by_status_and_entity(robin: httpx.Client) -> None:
    one, two = Dispute(robin), Dispute(robin)
    assert numbers(conflicts(robin))[:2] == [two.conflict_id, one.conflict_id]
    assert conflicts(robin, entity=one.subject) == [one.shown()]
    one.resolved(winner=one.one["fact_id"])
    assert one.conflict_id not in numbers(conflicts(robin, status="open"))
    assert two.conflict_id in numbers(conflicts(robin, status="open"))
    assert one.conflict_id in numbers(conflicts(robin, status="resolved"))
    assert two.conflict_id not in numbers(conflicts(robin, status="resolved"))
    assert numbers(conflicts(robin, entity=one.subject, status="resolved")) == [one.conflict_id]
    assert conflicts(robin, entity=one.subject, status="open") == []


def test_an_entity_is_found_by_name_alias_and_id(robin: httpx.Client) -> None:
    made = Dispute(robin)
    entity_id, alias = made.one["subject"]["entity_id"], new("alias")
    robin.post(f"/v1/entities/{entity_id}/aliases", json={"alias": alias})
    for name in (made.subject, f"  {made.subject.upper()} ", alias, entity_id):
        assert numbers(conflicts(robin, entity=name)) == [made.conflict_id]


def test_a_filter_by_an_unknown_name_finds_nothing(robin: httpx.Client) -> None:
    Dispute(robin)
    assert conflicts(robin, entity=new("nobody")) == []
    assert conflicts(robin, entity=str(uuid4())) == []


@pytest.mark.parametrize("params", [{"status": "closed"}, {"limit": 0}, {"limit": 201}, {"cursor": "x"}], ids=str)
def test_what_makes_no_sense_in_a_list_is_refused(robin: httpx.Client, params: dict[str, Any]) -> None:
    assert robin.get("/v1/conflicts", params=params).status_code == 400


def test_a_list_is_read_page_by_page(robin: httpx.Client) -> None:
    subject, name = new("person"), new("born in")
    made: list[str] = []
    for place in ("Bern", "Basel", "Biel", "Brig"):
        made += sorted(write(robin, subject, name, place)["conflicts"])
    assert len(made) == 6
    found: list[str] = []
    cursor: str | None = None
    while True:
        params = {"entity": subject, "limit": 4, **({"cursor": cursor} if cursor else {})}
        page = robin.get("/v1/conflicts", params=params).json()
        found += numbers(page["conflicts"])
        cursor = page["next_cursor"]
        if cursor is None:
            break
        assert len(page["conflicts"]) == 4
        Dispute(robin)
    assert sorted(found) == sorted(made)
    assert found == numbers(conflicts(robin, entity=subject))
    first = robin.get("/v1/conflicts", params={"entity": subject, "limit": 4}).json()["next_cursor"]
    stolen = robin.get("/v1/conflicts", params={"entity": new(), "limit": 4, "cursor": first})
    assert error(stolen) == (400, "cursor_invalid")


def test_a_conflict_that_never_was_is_not_found(robin: httpx.Client) -> None:
    path = f"/v1/conflicts/{uuid4()}"
    assert error(robin.get(path)) == (404, "conflict_not_found")
    assert error(robin.post(f"{path}/resolve", json={"winner": str(uuid4())})) == (404, "conflict_not_found")
    assert error(robin.post(f"{path}/resolve", json={"value": "Bern"})) == (404, "conflict_not_found")


# A winner


@pytest.mark.parametrize("side", ["one", "two"])
def test_the_winner_is_held_for_certain_and_the_loser_is_history(robin: httpx.Client, side: str) -> None:
    made = Dispute(robin, confidence=0.6)
    winner, loser = (made.one, made.two) if side == "one" else (made.two, made.one)
    answer = made.resolved(winner=winner["fact_id"], note="the passport says so")
    assert set(answer) == {"conflict", "fact", "retracted"}
    assert answer["retracted"] == [loser["fact_id"]]
    assert answer["fact"] == {**winner, "confidence": 1.0, "contradicted": False}
    assert answer["fact"] == read(robin, winner["fact_id"])
    ended = answer["conflict"]
    assert (ended["status"], ended["winner"], ended["preferred"]) == ("resolved", winner["fact_id"], None)
    assert (ended["resolved_by"], ended["resolution_note"]) == ("robin", "the passport says so")
    assert ended["resolved_at"] >= ended["detected_at"]
    assert ended == made.shown()
    gone = read(robin, loser["fact_id"])
    assert (gone["confidence"], gone["retracted_at"], gone["contradicted"]) == (0, ended["resolved_at"], False)
    assert made.current() == [(winner["object"]["value"], 1.0)]
    assert set(ids(listed(robin, entity=made.subject, include_inactive=True))) == set(made.sides)
    (line,) = history(robin, loser["fact_id"])["retractions"]
    assert (line["kind"], line["reason"], line["retracted_by"], line["confidence_before"]) == (
        "resolved",
        "the passport says so",
        "robin",
        0.6,
    )
    assert retracted_as(robin, winner["fact_id"]) == []


def test_what_was_decided_against_is_in_the_provenance_and_not_in_derived_from(robin: httpx.Client) -> None:
    source = fact(robin, new(), new("says"), "born in Basel")
    made = Dispute(robin, second={"derived_from": [source["fact_hash"]]})
    answer = made.resolved(winner=made.two["fact_id"])
    assert answer["fact"]["derived_from"] == [source["fact_hash"]]
    walked = provenance(robin, made.two["fact_id"])
    assert {(edge["derived_fact_id"], edge["source_hash"], edge["kind"]) for edge in walked["edges"]} == {
        (made.two["fact_id"], source["fact_hash"], "derived"),
        (made.two["fact_id"], made.one["fact_hash"], "resolves"),
    }
    (loser,) = [node for node in walked["nodes"] if node["hash"] == made.one["fact_hash"]]
    assert loser["exists"] is True
    assert loser["fact"] == read(robin, made.one["fact_id"])
    assert provenance(robin, made.one["fact_id"])["edges"] == []


def test_before_the_resolution_both_were_believed_and_contradicted(robin: httpx.Client) -> None:
    made = Dispute(robin, confidence=0.6)
    before = now()
    made.resolved(winner=made.one["fact_id"])
    then = listed(robin, entity=made.subject, as_of=before)
    shown = {item["fact_id"]: (item["confidence"], item["contradicted"], item["retracted_at"]) for item in then}
    assert shown == dict.fromkeys(made.sides, (0.6, True, None))
    for fact_id in made.sides:
        assert read(robin, fact_id, as_of=before)["contradicted"] is True
    assert provenance(robin, made.one["fact_id"], as_of=before)["edges"] == []
    after = listed(robin, entity=made.subject, as_of=now())
    assert [(item["fact_id"], item["confidence"], item["contradicted"]) for item in after] == [
        (made.one["fact_id"], 1.0, False)
    ]


def test_the_loser_can_be_asserted_anew_and_is_in_conflict_again(robin: httpx.Client) -> None:
    made = Dispute(robin)
    made.resolved(winner=made.one["fact_id"])
    again = write(robin, made.subject, made.predicate, "Basel")
    assert (again["outcome"], len(again["conflicts"])) == ("created", 1)
    assert again["fact"]["fact_id"] not in made.sides
    assert read(robin, made.one["fact_id"])["contradicted"] is True
    assert made.shown()["status"] == "resolved"


def test_resolution_note_means_note(robin: httpx.Client) -> None:
    made = Dispute(robin)
    both = made.resolve(winner=made.one["fact_id"], note="a", resolution_note="b")
    assert error(both) == (400, "invalid_request")
    answer = made.resolved(winner=made.one["fact_id"], resolution_note="asked her")
    assert answer["conflict"]["resolution_note"] == "asked her"
    assert history(robin, made.two["fact_id"])["retractions"][0]["reason"] == "asked her"


def test_another_agent_of_the_project_may_resolve(robin: httpx.Client, wren: httpx.Client) -> None:
    made = Dispute(robin)
    answer = made.resolved(wren, winner=made.one["fact_id"])
    assert answer["conflict"]["resolved_by"] == "wren"
    assert answer["fact"]["agent_id"] == "robin"
    assert history(robin, made.two["fact_id"])["retractions"][0]["retracted_by"] == "wren"


def test_a_conflict_is_resolved_only_once(robin: httpx.Client) -> None:
    made = Dispute(robin)
    made.resolved(winner=made.one["fact_id"])
    before = made.shown()
    fields: dict[str, Any]
    for fields in ({"winner": made.one["fact_id"]}, {"winner": made.two["fact_id"]}, {"value": "Biel"}):
        assert error(made.resolve(**fields)) == (409, "conflict_already_resolved")
    assert made.shown() == before
    assert made.current() == [("Bern", 1.0)]


def test_what_ended_by_a_retraction_is_resolved_already(robin: httpx.Client) -> None:
    made = Dispute(robin)
    robin.post(f"/v1/facts/{made.two['fact_id']}/retract", json={})
    assert made.shown()["status"] == "resolved"
    fields: dict[str, Any]
    for fields in ({"winner": made.one["fact_id"]}, {"value": "Biel"}):
        assert error(made.resolve(**fields)) == (409, "conflict_already_resolved")


def test_the_winner_is_one_of_the_two(robin: httpx.Client) -> None:
    made, other = Dispute(robin), Dispute(robin)
    beside = fact(robin, made.subject, new("lives in"), "Biel")
    for strange in (other.one["fact_id"], beside["fact_id"], str(uuid4())):
        answer = made.resolve(winner=strange)
        assert error(answer) == (400, "conflict_winner_invalid")
        assert answer.json()["error"]["details"] == {"facts": made.sides}
    assert made.shown()["status"] == other.shown()["status"] == "open"
    assert not any(read(robin, fact_id)["retracted_at"] for fact_id in made.sides + other.sides)


BAD: list[dict[str, Any]] = [
    {},
    {"note": "just because"},
    {"winner": None},
    {"winner": "Bern"},
    {"winner": 1},
    {"value": ["Bern"]},
    {"value": {"place": "Bern"}},
    {"value": "Bern", "type": "number"},
    {"value": "Bern", "type": "entity"},
    {"value": "Bern", "valid_from": "yesterday"},
    {"value": "Bern", "valid_from": "2020-01-01T00:00:00"},
    {"value": "Bern", "evidence": ["a note"]},
    {"value": "Bern", "note": ""},
    {"value": "Bern", "note": "x" * 501},
    {"value": "Bern", "confidence": 0.5},
]


@pytest.mark.parametrize("fields", BAD, ids=lambda item: str(item)[:50])
def test_a_malformed_resolution_changes_nothing(robin: httpx.Client, fields: dict[str, Any]) -> None:
    made = Dispute(robin)
    answer = made.resolve(**fields)
    assert answer.status_code == 400, answer.text
    assert made.shown()["status"] == "open"
    assert {item["fact_id"] for item in listed(robin, entity=made.subject)} == set(made.sides)


def test_winner_and_value_exclude_each_other(robin: httpx.Client) -> None:
    made = Dispute(robin)
    assert error(made.resolve(winner=made.one["fact_id"], value="Biel")) == (400, "invalid_request")
    assert made.shown()["status"] == "open"


# A new value


def test_a_new_value_takes_the_place_of_both(robin: httpx.Client) -> None:
    made = Dispute(robin, first={"valid_from": year(2015)}, second={"valid_from": year(2010)}, confidence=0.7)
    cited = note(robin)
    before = now()
    answer = made.resolved(value="Biel", evidence=[cited], note="the register")
    third = answer["fact"]
    assert third["fact_id"] not in made.sides
    assert (third["object"], third["confidence"], third["contradicted"]) == (
        {"value": "Biel", "type": "string"},
        1.0,
        False,
    )
    assert (third["subject"], third["predicate"], third["scope"]) == (
        made.one["subject"],
        made.one["predicate"],
        "project_shared",
    )
    assert (third["valid_from"], third["valid_to"]) == (year(2010), None)
    assert (third["evidence"], third["derived_from"], third["agent_id"]) == ([cited], [], "robin")
    assert sorted(answer["retracted"]) == sorted(made.sides)
    assert (answer["conflict"]["status"], answer["conflict"]["winner"]) == ("resolved", third["fact_id"])
    assert made.current() == [("Biel", 1.0)]
    assert ids(listed(robin, entity=made.subject, valid_at=year(2012))) == [third["fact_id"]]
    for fact_id in made.sides:
        assert retracted_as(robin, fact_id) == ["resolved"]
        assert read(robin, fact_id)["contradicted"] is False
    assert {(edge["source_hash"], edge["kind"]) for edge in provenance(robin, third["fact_id"])["edges"]} == {
        (made.one["fact_hash"], "resolves"),
        (made.two["fact_hash"], "resolves"),
    }
    then = listed(robin, entity=made.subject, as_of=before)
    assert {(item["fact_id"], item["contradicted"]) for item in then} == {(fact_id, True) for fact_id in made.sides}


def test_a_new_value_starts_where_it_is_told_to(robin: httpx.Client) -> None:
    made = Dispute(robin, first={"valid_from": year(2015)}, second={"valid_from": year(2010)})
    answer = made.resolved(value="Biel", valid_from="2012-01-01T02:00:00+02:00")
    assert answer["fact"]["valid_from"] == year(2012)
    assert listed(robin, entity=made.subject, valid_at=year(2011)) == []
    assert made.current() == [("Biel", 1.0)]


def test_a_new_value_lasts_as_long_as_what_it_replaces(robin: httpx.Client) -> None:
    made = Dispute(
        robin,
        first={"valid_from": year(2010), "valid_to": year(2012)},
        second={"valid_from": year(2011), "valid_to": year(2014)},
    )
    third = made.resolved(value="Biel")["fact"]
    assert (third["valid_from"], third["valid_to"]) == (year(2010), year(2014))
    assert made.current() == []


@pytest.mark.parametrize(
    ("value", "kind", "shown"),
    [
        (7, None, {"value": 7, "type": "number"}),
        (False, None, {"value": False, "type": "boolean"}),
        (None, None, {"value": None, "type": "null"}),
        ("2026-01-31T12:00:00Z", "datetime", {"value": "2026-01-31T12:00:00Z", "type": "datetime"}),
    ],
    ids=str,
)
def test_a_new_value_may_be_of_another_type(robin: httpx.Client, value: Any, kind: str | None, shown: Any) -> None:
    made = Dispute(robin)
    sent: dict[str, Any] = {"value": value} if kind is None else {"value": value, "type": kind}
    answer = made.resolved(**sent)
    assert answer["fact"]["object"] == shown
    assert made.current() == [(shown["value"], 1.0)]


@pytest.mark.parametrize("value", ["Bern", "Basel"])
@pytest.mark.parametrize("starts", [{}, {"first": {"valid_from": year(2010)}, "second": {"valid_from": year(2015)}}])
def test_a_value_of_one_of_the_two_makes_it_the_winner(robin: httpx.Client, value: str, starts: dict[str, Any]) -> None:
    made = Dispute(robin, confidence=0.6, **starts)
    winner, loser = (made.one, made.two) if value == "Bern" else (made.two, made.one)
    answer = made.resolved(value=value)
    assert made.current() == [(value, 1.0)]
    assert (answer["fact"]["fact_id"], answer["retracted"]) == (winner["fact_id"], [loser["fact_id"]])
    assert (answer["fact"]["confidence"], answer["fact"]["contradicted"]) == (1.0, False)
    assert answer["conflict"]["winner"] == winner["fact_id"]
    assert retracted_as(robin, winner["fact_id"]) == []
    assert retracted_as(robin, loser["fact_id"]) == ["resolved"]


def test_a_new_value_with_evidence_that_is_not_there_changes_nothing(robin: httpx.Client) -> None:
    made = Dispute(robin)
    assert error(made.resolve(value="Biel", evidence=[str(uuid4())])) == (404, "note_not_found")
    assert made.shown()["status"] == "open"
    assert {value for value, _ in made.current()} == {"Bern", "Basel"}


def test_a_resolution_leaves_no_conflict_behind(robin: httpx.Client) -> None:
    made = Dispute(robin)
    made.resolved(value="Biel")
    assert numbers(conflicts(robin, entity=made.subject)) == [made.conflict_id]


# Three at once


def three_way(client: httpx.Client) -> tuple[Dispute, dict[str, Any], list[str]]:
    made = Dispute(client)
    third = write(client, made.subject, made.predicate, "Biel")
    assert len(third["conflicts"]) == 2
    return made, third["fact"], third["conflicts"]


def test_of_three_values_two_stay_in_conflict(robin: httpx.Client) -> None:
    made, third, _ = three_way(robin)
    made.resolved(winner=made.one["fact_id"])
    assert {item["fact_id"]: item["contradicted"] for item in listed(robin, entity=made.subject)} == {
        made.one["fact_id"]: True,
        third["fact_id"]: True,
    }
    (left,) = conflicts(robin, entity=made.subject, status="open")
    assert {left["fact_a"], left["fact_b"]} == {made.one["fact_id"], third["fact_id"]}
    assert left["preferred"] == third["fact_id"]
    answer = robin.post(f"/v1/conflicts/{left['conflict_id']}/resolve", json={"winner": third["fact_id"]})
    assert answer.status_code == 200
    assert made.current() == [("Biel", 1.0)]
    assert conflicts(robin, entity=made.subject, status="open") == []
    assert retracted_as(robin, made.one["fact_id"]) == ["resolved"]
    assert made.shown()["winner"] == made.one["fact_id"]


def test_a_conflict_with_the_loser_ends_with_it(robin: httpx.Client) -> None:
    made, third, others = three_way(robin)
    made.resolved(winner=made.one["fact_id"])
    (with_loser,) = [
        found
        for found in (robin.get(f"/v1/conflicts/{conflict_id}").json() for conflict_id in others)
        if made.two["fact_id"] in (found["fact_a"], found["fact_b"])
    ]
    assert (with_loser["status"], with_loser["preferred"]) == ("resolved", None)
    again = robin.post(f"/v1/conflicts/{with_loser['conflict_id']}/resolve", json={"winner": third["fact_id"]})
    assert error(again) == (409, "conflict_already_resolved")


def test_a_new_value_is_in_conflict_with_the_third(robin: httpx.Client) -> None:
    made, third, _ = three_way(robin)
    answer = made.resolved(value="Brig")
    assert answer["fact"]["contradicted"] is True
    (left,) = conflicts(robin, entity=made.subject, status="open")
    assert {left["fact_a"], left["fact_b"]} == {answer["fact"]["fact_id"], third["fact_id"]}


def test_the_value_of_a_third_is_held_for_certain(robin: httpx.Client) -> None:
    made = Dispute(robin)
    fact(robin, made.subject, made.predicate, "Biel", confidence=0.5)
    made.resolved(value="Biel")
    assert made.current() == [("Biel", 1.0)]
    assert conflicts(robin, entity=made.subject, status="open") == []


# For whom


def test_conflicts_of_other_tenants_and_projects_are_not_there(
    robin: httpx.Client, rival: httpx.Client, elsewhere: httpx.Client
) -> None:
    made = Dispute(robin, scope="public")
    for stranger in (rival, elsewhere):
        assert refusal(stranger.get(made.path)) == refusal(stranger.get(f"/v1/conflicts/{uuid4()}"))
        for fields in ({"winner": made.one["fact_id"]}, {"value": "Biel"}):
            assert error(made.resolve(stranger, **fields)) == (404, "conflict_not_found")
        assert made.conflict_id not in numbers(conflicts(stranger))
        assert conflicts(stranger, entity=made.subject) == []
    assert made.shown()["status"] == "open"


def test_conflicts_of_private_facts_are_for_their_agent_alone(
    robin: httpx.Client, wren: httpx.Client, admin: httpx.Client
) -> None:
    made = Dispute(robin, scope="agent_private")
    for stranger in (wren, admin):
        assert error(stranger.get(made.path)) == (404, "conflict_not_found")
        for fields in ({"winner": made.one["fact_id"]}, {"value": "Biel"}):
            assert error(made.resolve(stranger, **fields)) == (404, "conflict_not_found")
        assert conflicts(stranger, entity=made.subject) == []
    answer = made.resolved(value="Biel")
    assert (answer["fact"]["scope"], answer["fact"]["agent_id"]) == ("agent_private", "robin")
    assert error(wren.get(f"/v1/facts/{answer['fact']['fact_id']}")) == (404, "fact_not_found")


def test_in_a_garden_only_its_writers_decide(robin: httpx.Client, wren: httpx.Client) -> None:
    place = garden(robin)
    one, two = Dispute(robin, garden_id=place), Dispute(robin, garden_id=place)
    assert error(wren.get(one.path)) == (404, "conflict_not_found")
    assert error(one.resolve(wren, winner=one.one["fact_id"])) == (404, "conflict_not_found")
    assert conflicts(wren, entity=one.subject) == []
    robin.put(f"/v1/gardens/{place}/members/wren", json={"role": "reader"})
    assert one.shown(wren)["status"] == "open"
    for fields in ({"winner": one.one["fact_id"]}, {"value": "Biel"}):
        assert error(one.resolve(wren, **fields)) == (403, "garden_forbidden")
    assert {value for value, _ in one.current()} == {"Bern", "Basel"}
    robin.put(f"/v1/gardens/{place}/members/wren", json={"role": "writer"})
    assert one.resolved(wren, winner=one.one["fact_id"])["conflict"]["resolved_by"] == "wren"
    assert two.resolved(wren, value="Biel")["fact"]["garden_id"] == place


def test_an_administrator_decides_in_every_garden(robin: httpx.Client, admin: httpx.Client) -> None:
    place = garden(robin)
    one, two = Dispute(robin, garden_id=place), Dispute(robin, garden_id=place)
    assert one.resolved(admin, winner=one.one["fact_id"])["fact"]["fact_id"] == one.one["fact_id"]
    assert two.resolved(admin, value="Biel")["fact"]["garden_id"] == place


def test_the_conflicts_of_what_is_forgotten_are_gone(robin: httpx.Client, admin: httpx.Client) -> None:
    made = Dispute(robin)
    stone = tombstone(admin, made.subject)
    assert error(robin.get(made.path)) == (404, "conflict_not_found")
    fields: dict[str, Any]
    for fields in ({"winner": made.one["fact_id"]}, {"value": "Biel"}):
        assert error(made.resolve(**fields)) == (404, "conflict_not_found")
    assert conflicts(robin, entity=made.subject) == []
    assert made.conflict_id not in numbers(conflicts(admin))
    assert admin.post(f"/v1/tombstones/{stone}/revoke", json={"reason": "by mistake"}).status_code == 200
    assert made.shown()["status"] == "open"
    assert made.resolved(winner=made.one["fact_id"])["conflict"]["status"] == "resolved"


def test_who_may_only_read_cannot_resolve(
    robin: httpx.Client, tenancy: Any, as_key: Callable[..., httpx.Client]
) -> None:
    made = Dispute(robin)
    reader = as_key(tenancy.key("acme", agent_id="wren", scopes=["facts:read"]))
    assert made.shown(reader)["status"] == "open"
    assert error(made.resolve(reader, winner=made.one["fact_id"])) == (403, "missing_scope")
    noter = as_key(tenancy.key("acme", agent_id="wren", scopes=["notes:read"]))
    assert error(noter.get("/v1/conflicts")) == (403, "missing_scope")
    assert error(noter.get(made.path)) == (403, "missing_scope")


# What follows


def test_values_side_by_side_are_no_conflict(robin: httpx.Client) -> None:
    subject, name = new(), predicate(robin)["name"]
    write(robin, subject, name, "tea")
    write(robin, subject, name, "milk")
    assert conflicts(robin, entity=subject) == []


def test_a_resolution_is_in_the_audit_log_once(robin: httpx.Client, superuser: Superuser) -> None:
    made = Dispute(robin)
    third = made.resolved(value="Biel")["fact"]
    lines = superuser.execute(
        "SELECT event_type, agent_id, details FROM audit_log WHERE details::text LIKE %s",
        (f"%{third['fact_id']}%",),
    ).fetchall()
    assert [(line["event_type"], line["agent_id"], line["details"]["action"]) for line in lines] == [
        ("fact_write", "robin", "conflict_resolve")
    ]
    assert sorted(lines[0]["details"]["retracted"]) == sorted(made.sides)


@pytest.mark.parametrize("kind", ["winner", "value", "both"])
def test_of_two_who_resolve_at_once_one_wins(
    robin: httpx.Client, keys: dict[str, str], as_key: Callable[..., httpx.Client], kind: str
) -> None:
    clients = [as_key(keys["robin"]), as_key(keys["wren"])]
    for _ in range(6):
        made = Dispute(robin)
        start = threading.Barrier(2)
        sent: list[dict[str, Any]] = {
            "winner": [{"winner": made.one["fact_id"]}, {"winner": made.two["fact_id"]}],
            "value": [{"value": "Biel"}, {"value": "Brig"}],
            "both": [{"winner": made.one["fact_id"]}, {"value": "Brig"}],
        }[kind]

        def decide(number: int, made: Dispute = made, start: threading.Barrier = start, sent: Any = sent) -> Any:
            start.wait(10)
            return made.resolve(clients[number], **sent[number])

        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(decide, range(2)))
        assert sorted(answer.status_code for answer in answers) == [200, 409]
        (won,) = [answer.json() for answer in answers if answer.status_code == 200]
        (lost,) = [answer for answer in answers if answer.status_code == 409]
        assert error(lost) == (409, "conflict_already_resolved")
        assert made.shown()["winner"] == won["fact"]["fact_id"]
        assert made.current() == [(won["fact"]["object"]["value"], 1.0)]


@pytest.mark.parametrize("form", [{"value": "third"}, {"value": {"value": "third", "type": "string"}}])
def test_a_new_value_is_said_plainly_or_as_the_object_of_a_fact(robin: httpx.Client, form: dict[str, Any]) -> None:
    name, said = new(), new("p")
    for value in ("first", "second"):
        fact(robin, name, said, value)
    (conflict,) = robin.get("/v1/conflicts", params={"entity": name}).json()["conflicts"]
    answer = robin.post(f"/v1/conflicts/{conflict['conflict_id']}/resolve", json=form)
    assert answer.json()["fact"]["object"] == {"value": "third", "type": "string"}


@pytest.mark.parametrize(
    "form", [{"value": {"entity": "x"}}, {"value": {"odd": 1}}, {"value": {}}, {"value": []}, {"value": {"value": []}}]
)
def test_what_is_no_value_does_not_resolve(robin: httpx.Client, form: dict[str, Any]) -> None:
    name, said = new(), new("p")
    for value in ("first", "second"):
        fact(robin, name, said, value)
    (conflict,) = robin.get("/v1/conflicts", params={"entity": name}).json()["conflicts"]
    answer = robin.post(f"/v1/conflicts/{conflict['conflict_id']}/resolve", json=form)
    assert error(answer) == (400, "invalid_request")
    assert answer.json()["error"]["message"].startswith("value")


# More values than pairs are recorded


def crowd(
    client: httpx.Client, subject: str, name: str, count: int, *, prefix: str = "claim", **fields: Any
) -> list[str]:
    sent = [body(subject, name, f"{prefix} {number}", **fields) for number in range(count)]
    answer = client.post("/v1/facts/batch", json={"facts": sent})
    assert answer.status_code == 200, answer.text
    return [item["fact"]["fact_id"] for item in answer.json()["results"]]


@pytest.mark.parametrize("best", ["first", "middle", "last"])
def test_of_many_values_exactly_the_preferred_one_is_listed(robin: httpx.Client, best: str) -> None:
    subject, name = new(), new("born in")
    before, after = {"first": (0, 45), "middle": (22, 23), "last": (45, 0)}[best]
    if before:
        crowd(robin, subject, name, before, confidence=0.5)
    sure = fact(robin, subject, name, "Bern", confidence=0.9)["fact_id"]
    if after:
        crowd(robin, subject, name, after, prefix="other claim", confidence=0.4)
    for params in ({}, {"include_inactive": True}):
        found = listed(robin, entity=subject, include_contradicted=False, **params)
        assert ids(found) == [sure]
        assert found[0]["contradicted"] is True
    assert ids(listed(robin, predicate=name, include_contradicted=False)) == [sure]
    recalled = robin.post("/v1/recall", json={"query": "Bern", "entity": subject, "include": ["facts"]}).json()
    assert [one["id"] for one in recalled["results"]] == [sure]


def test_what_no_recorded_pair_is_left_of_still_contradicts(robin: httpx.Client) -> None:
    subject, name = new(), new("born in")
    sure = fact(robin, subject, name, "Bern", confidence=0.9)["fact_id"]
    claims = crowd(robin, subject, name, 30, confidence=0.5)
    for claim in claims[:24]:
        robin.post(f"/v1/facts/{claim}/retract", json={}).raise_for_status()
    left = listed(robin, entity=subject)
    assert (len(left), {item["contradicted"] for item in left}) == (7, {True})
    assert ids(listed(robin, entity=subject, include_contradicted=False)) == [sure]
    for claim in claims[24:]:
        robin.post(f"/v1/facts/{claim}/retract", json={}).raise_for_status()
    (held,) = listed(robin, entity=subject, include_contradicted=False)
    assert (held["fact_id"], held["contradicted"]) == (sure, False)


def test_many_contradicting_values_are_retracted_at_once(robin: httpx.Client, superuser: Superuser) -> None:
    subject, name = new(), new("born in")
    claims = crowd(robin, subject, name, 60, confidence=0.5)
    other = fact(robin, subject, name, "Bern", scope="public")["fact_id"]
    sent = {"subject": subject, "predicate": name, "reason": "made up"}
    answer = robin.post("/v1/facts/retract", json=sent)
    assert answer.json()["retracted"] == sorted(claims)
    rows = superuser.execute(
        "SELECT DISTINCT kind, reason, confidence_before, retracted_by FROM fact_retractions "
        "WHERE fact_id = ANY (%s::uuid[])",
        (claims,),
    ).fetchall()
    assert [tuple(row.values()) for row in rows] == [("retracted", "made up", 0.5, "robin")]
    still = "SELECT count(*) AS open FROM fact_conflicts WHERE status = 'open' AND fact_a = ANY (%s::uuid[])"
    assert superuser.execute(still, (claims,)).fetchone() == {"open": 0}
    assert ids(listed(robin, entity=subject)) == [other]
    assert robin.post("/v1/facts/retract", json=sent).json()["retracted"] == []


# At a past time


def test_a_conflict_is_read_with_the_status_it_had(robin: httpx.Client) -> None:
    made = Dispute(robin, first={"confidence": 0.9}, second={"confidence": 0.4})
    found = made.shown()
    done = made.resolved(winner=made.two["fact_id"], note="checked")["conflict"]
    assert (done["status"], done["winner"]) == ("resolved", made.two["fact_id"])

    def then(moment: str) -> dict[str, Any]:
        answer = robin.get(made.path, params={"as_of": moment})
        assert answer.status_code == 200, answer.text
        return answer.json()

    # Known and open between the two times, with the preference and the confidences of that time.
    assert then(found["detected_at"]) == found
    assert then(done["resolved_at"]) == done
    early = (datetime.fromisoformat(found["detected_at"]) - timedelta(microseconds=1)).isoformat()
    assert error(robin.get(made.path, params={"as_of": early})) == (404, "conflict_not_found")
    about = {"entity": made.subject}
    assert conflicts(robin, **about, as_of=early) == []
    assert conflicts(robin, **about, as_of=found["detected_at"]) == [found]
    assert conflicts(robin, **about, as_of=found["detected_at"], status="open") == [found]
    assert conflicts(robin, **about, as_of=found["detected_at"], status="resolved") == []
    assert conflicts(robin, **about, as_of=done["resolved_at"], status="resolved") == [done]


def test_conflicts_of_a_past_time_need_the_scope(robin: httpx.Client, as_key: Any, tenancy: Any) -> None:
    made = Dispute(robin)
    plain = as_key(tenancy.key("acme", scopes=["facts:read"]))
    for path in (made.path, "/v1/conflicts"):
        assert error(plain.get(path, params={"as_of": now()})) == (403, "missing_scope")
        assert error(robin.get(path, params={"as_of": year(2999)})) == (400, "as_of_future")


def test_administrators_read_held_conflicts_of_the_past(robin: httpx.Client, admin: httpx.Client) -> None:
    made = Dispute(robin)
    then = now()
    tombstone(admin, made.subject, legal_hold=True)
    assert robin.get(made.path, params={"as_of": then}).status_code == 404
    shown = admin.get(made.path, params={"as_of": then}).json()
    assert shown["conflict_id"] == made.conflict_id
    assert [notice["legal_hold"] for notice in shown["tombstone_notices"]] == [True]
    assert admin.get(made.path).status_code == 404
