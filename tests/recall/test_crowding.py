"""What is not shown takes nobody's place: bounds come after what leaves things out, and kinds are compared fairly."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.recall.shared import LEXICAL, VECTOR, World


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    return new_world()


def many_facts(world: World, facts: list[dict[str, Any]]) -> list[str]:
    made: list[str] = []
    for start in range(0, len(facts), 1000):
        answer = world.robin.post("/v1/facts/batch", json={"facts": facts[start : start + 1000]})
        assert answer.status_code in (200, 201), answer.text
        made += [one["fact"]["fact_id"] for one in answer.json()["results"]]
    planned_for(world, made)
    return made


def planned_for(world: World, made: list[str]) -> None:
    """Count what was written now, as autovacuum does in a minute: plans don't depend on when it comes."""
    if len(made) >= 500:
        world.superuser.execute("ANALYZE")


def many_notes(world: World, contents: list[str], **fields: Any) -> list[str]:
    answer = world.robin.post("/v1/notes/batch", json={"notes": [{"content": one, **fields} for one in contents]})
    assert answer.status_code in (200, 201), answer.text
    made = [one["note"]["note_id"] for one in answer.json()["results"]]
    planned_for(world, made)
    return made


def said(subject: str, predicate: str, value: str, **fields: Any) -> dict[str, Any]:
    return {"subject": subject, "predicate": predicate, "object": {"value": value, "type": "string"}, **fields}


def test_notes_and_facts_are_scored_by_the_same_measure(world: World) -> None:
    note = world.note("Alice prefers tea.")
    fact = world.fact("Alice", "lives_in", "Paris")
    many_facts(world, [said(f"Thing {n}", "weighs", f"{n} grams") for n in range(150)])
    for weights in (LEXICAL, {"lexical": 0.6, "graph": 0.4}):
        found = world.scores("Alice tea", weights=weights)
        assert found[note]["lexical"] == 1.0, "it has both words"
        assert found[fact]["lexical"] < 0.6
    assert world.found("Alice tea")[0] == note


def test_ranks_are_those_among_notes_and_facts_together(world: World) -> None:
    query = "by the sea"
    fact = world.fact("Zed", "weighs", "5 kilograms")
    world.place(fact, query, 0.1)
    for turn, note in enumerate(many_notes(world, [f"Remark {n}." for n in range(10)]), start=1):
        world.place(note, query, 0.9 - turn / 100, turn=turn)
    found = world.found(query, fusion="rrf", weights=VECTOR, lambda_mmr=1)
    assert found[-1] == fact


def test_20_3_4_all_facts_of_an_entity_are_within_reach(world: World) -> None:
    secret = world.fact("Atlas", "has_secret", "xylophone under the floor")
    quiet = world.fact("Atlas", "was_built_in", "1950")
    many_facts(world, [said("Atlas", "measured", f"sample {n}") for n in range(2100)])
    found = world.found("Atlas xylophone under the floor", entity="Atlas", lambda_mmr=1)
    assert found[0] == secret
    assert quiet in found
    assert world.found("xylophone", relation="has_secret") == [secret]
    noted = many_facts(world, [{**said("Atlas", "noted", ""), "object": {"entity": f"Log {n}"}} for n in range(2100)])
    answer = world.recall("Atlas xylophone under the floor", entity="Atlas", max_results=200, token_budget=100_000)
    assert answer["results"][0]["id"] == secret
    assert answer["truncated"] is True
    assert len(set(noted) & {one["id"] for one in answer["results"]}) > 150


@pytest.mark.parametrize("weights", [LEXICAL, VECTOR, {"lexical": 0.4, "vector": 0.6}])
def test_facts_that_are_outdone_take_nobodys_place(world: World, weights: dict[str, float]) -> None:
    query = "sensor reading"
    rivals = many_facts(world, [said("Sensor", "reading", f"reading {n} bar", confidence=0.6) for n in range(120)])
    best = world.fact("Sensor", "reading", "reading of the old gauge in the cellar, in bar", confidence=0.95)
    other = world.fact("Sensor handbook", "explains", "how the reading of the pressure sensor is taken down by hand")
    for turn, one in enumerate(rivals):
        world.place(one, query, 0.9 - turn / 1000, turn=turn)
    world.place(best, query, 0.5, turn=130)
    world.place(other, query, 0.4, turn=131)
    assert set(world.found(query, weights=weights, depth=0, lambda_mmr=1)) == {best, other}
    everything = world.found(query, weights=weights, depth=0, include_contradicted=True, max_results=200, lambda_mmr=1)
    assert len(set(everything) & set(rivals)) > 40


@pytest.mark.parametrize("asks", [{"min_confidence": 0.5}, {}])
def test_20_3_6_the_unsure_take_nobodys_place(world: World, asks: dict[str, Any]) -> None:
    # Without min_confidence it is trust that leaves them out, where it is on.
    assert world.admin.patch("/v1/admin/projects/default", json={"trust_mode": "warn"}).status_code == 200
    many_facts(world, [said(f"Rumour {n}", "tells", "telescope recalibrated", confidence=0.2) for n in range(300)])
    sure = world.fact(
        "Observatory", "reports", "that on Monday the big telescope was at last recalibrated by its makers"
    )
    for weights in (LEXICAL, {"lexical": 0.6, "graph": 0.4}):
        assert world.found("telescope recalibrated", weights=weights, lambda_mmr=1, **asks) == [sure]


def test_words_of_then_are_found_however_much_was_edited_since(world: World) -> None:
    note = world.note("The axolotl regrew its left limb.")
    others = many_notes(world, [f"Entry {n} of the diary." for n in range(520)])
    then = world.now()
    for one in (note, *others):
        answer = world.robin.patch(f"/v1/notes/{one}", json={"content": f"Changed {one}.", "reason": "tidied"})
        assert answer.status_code == 200, answer.text
    assert world.found("axolotl limb", weights=LEXICAL, as_of=then) == [note]
    assert world.found("axolotl limb", weights=LEXICAL) == []


def test_notes_about_an_entity_are_found_by_their_words_at_any_time(world: World) -> None:
    first = world.note("She bought a theremin in Tallinn.")
    world.fact("Mona", "bought", "a theremin", evidence=[first])
    then = world.now()
    later = many_notes(world, [f"She walked {n} miles." for n in range(230)])
    many_facts(world, [said("Mona", "walked", f"{n} miles", evidence=[one]) for n, one in enumerate(later)])
    asks: dict[str, Any] = {"entity": "Mona", "include": ["notes"], "lambda_mmr": 1}
    assert world.found("theremin Tallinn", **asks)[0] == first
    assert world.found("theremin Tallinn", as_of=then, **asks) == [first]


def test_what_is_private_says_nothing_of_the_notes_it_cites(world: World) -> None:
    note = world.note("The quarterly numbers look dreadful.")
    fact = world.fact("Falcon", "has_office_in", "Lisbon")
    asks: dict[str, Any] = {"entity": "Falcon", "token_budget": 10_000}
    before = world.found("numbers", **asks)
    graph = world.scores("numbers dreadful").get(fact)
    assert before == [fact]
    secret = world.fact("Falcon", "will_be", "shut down", by=world.wren, scope="agent_private", evidence=[note])
    assert world.found("numbers", **asks) == before
    assert world.scores("numbers dreadful").get(fact) == graph
    assert set(world.found("numbers", by=world.wren, **asks)) == {fact, note, secret}


def test_private_notes_of_others_take_nobodys_place(world: World) -> None:
    note = world.note("Etna was seen at noon.")
    fact = world.fact("Etna", "was_seen", "at noon", evidence=[note])
    for n in range(201):
        own = world.note(f"Secret {n}.", by=world.wren, scope="agent_private")
        world.fact("Etna", "keeps", f"secret {n}", by=world.wren, scope="agent_private", evidence=[own])
    answer = world.recall("noon", entity="Etna")
    assert {one["id"] for one in answer["results"]} == {note, fact}
    assert answer["meta"]["candidates"] == 2
