"""All about one entity, with its card; and what a fact was concluded from (RECALL 20.3.4, 20.4.4, 20.4.5, 20.6.3)."""

from collections.abc import Callable
from typing import Any

import pytest

from app.recall.rendering import FRAME_TOKENS
from tests.cards.shared import built
from tests.facts.shared import entity, error, fact
from tests.recall.shared import LEXICAL, VECTOR, World, edge

# One entity


def test_20_3_4_all_facts_of_an_entity_by_score_and_nothing_for_being_alike(world: World) -> None:
    query = "green tea"
    ids = [world.fact("Alice", f"predicate {number}", f"value {number}") for number in range(4)]
    world.fact("Bob", "drinks", "green tea")
    # The first three say nearly the same, as far as their vectors tell.
    for one, cosine in zip(ids, (0.9, 0.89, 0.88, 0.2), strict=True):
        world.place(one, query, cosine)
    found = world.recall(query, entity="Alice", lambda_mmr=0.0, weights=VECTOR, include=["facts"])
    assert [one["id"] for one in found["results"]] == ids
    assert found["truncated"] is False
    two = world.recall(query, entity="Alice", lambda_mmr=0.0, weights=VECTOR, include=["facts"], max_results=2)
    assert [one["id"] for one in two["results"]] == ids[:2]
    assert two["truncated"] is True


@pytest.mark.parametrize("weights", [LEXICAL, VECTOR, {"graph": 1.0}, None])
def test_20_3_4_facts_of_the_entity_that_do_not_fit_the_query_are_there_too(
    new_world: Callable[..., World], weights: dict[str, float] | None
) -> None:
    world = new_world()
    ids = {world.fact("Alice", "drinks", "green tea"), world.fact("Alice", "plays", "chess")}
    ids.add(world.fact("Alice", "lives in", edge("Paris")))
    world.fact("Bob", "knows", edge("Alice"))
    asks: dict[str, Any] = {} if weights is None else {"weights": weights}
    answer = world.recall("green tea", entity="Alice", include=["facts"], **asks)
    assert {one["id"] for one in answer["results"]} == ids
    scores = [one["score"] for one in answer["results"]]
    assert scores == sorted(scores, reverse=True)


def test_an_entity_goes_by_any_of_its_names(world: World) -> None:
    made = entity(world.robin, "user:Alice Smith")
    answer = world.robin.post(f"/v1/entities/{made['entity_id']}/aliases", json={"alias": "Al"})
    assert answer.status_code in (200, 201), answer.text
    known = world.fact("user:alice-smith", "drinks", "green tea")
    for name in ("user:Alice Smith", "USER:ALICE-SMITH", "al", made["entity_id"]):
        assert world.found("tea", entity=name, include=["facts"]) == [known], name
        assert world.found("tea", entity_uri=name, include=["facts"]) == [known], name
    other = entity(world.robin, "Alan")
    world.robin.post(f"/v1/entities/{other['entity_id']}/aliases", json={"alias": "Al"})
    assert error(world.robin.post("/v1/recall", json={"query": "tea", "entity": "Al"})) == (409, "entity_ambiguous")


def test_notes_that_speak_of_the_entity_come_along(world: World) -> None:
    said = world.note("She has it with lemon.")
    world.note("Nobody else has lemon.")
    known = world.fact("Alice", "drinks", "green tea", evidence=[said])
    assert world.found("lemon", entity="Alice", include=["notes"]) == [said]
    assert set(world.found("lemon tea", entity="Alice")) == {said, known}


# Its card


def open_jobs(world: World) -> int:
    return world.one(
        "SELECT count(*) FROM jobs WHERE tenant_id = %s AND kind = 'card_refresh' AND status = 'pending'",
        world.tenant_id,
    )


def test_20_4_4_no_card_yet_facts_and_a_job(world: World) -> None:
    known = world.fact("Alice", "drinks", "green tea")
    world.superuser.execute("DELETE FROM jobs WHERE tenant_id = %s", (world.tenant_id,))
    answer = world.recall("tea", entity="Alice")
    assert answer["memory_card"] is None
    assert [one["id"] for one in answer["results"]] == [known]
    assert open_jobs(world) == 1
    again = world.recall("tea", entity="Alice")
    assert [one["id"] for one in again["results"]] == [known]
    assert open_jobs(world) == 1, "and it is not queued twice"


def test_20_4_4_the_card_comes_with_the_facts(world: World) -> None:
    known = world.fact("Alice", "drinks", "green tea")
    (card,) = built(world.robin, "Alice")
    answer = world.recall("tea", entity="Alice", rendered=True)
    assert answer["memory_card"] == card
    assert "green tea" in answer["memory_card"]["value"]["v"]
    assert "card_stale" not in answer
    assert [(one["id"], one["card_stale"]) for one in answer["results"]] == [(known, False)]
    quoted = "\n".join(f"> {line}".rstrip() for line in card["value"]["v"].strip().split("\n"))
    assert f"\nCard:\n{quoted}\n- Fact (" in answer["rendered"]
    assert world.recall("tea", entity="Alice", relation="drinks")["memory_card"] is None, "with a relation: no card"
    assert world.recall("tea")["memory_card"] is None, "without an entity: no card"
    assert world.recall("tea", entity="Alice", include=["notes"])["memory_card"] is None
    assert world.recall("tea", entity="Alice", valid_at=world.now())["memory_card"] is None
    assert world.recall("tea", entity="Alice", as_of=world.now())["memory_card"] is None


def test_20_4_5_a_card_that_tells_what_is_no_longer_so_goes_into_no_prompt(world: World) -> None:
    wrong = world.fact("Alice", "drinks", "green tea")
    kept = world.fact("Alice", "plays", "chess")
    built(world.robin, "Alice")
    world.robin.post(f"/v1/facts/{wrong}/retract", json={"reason": "wrong"})
    answer = world.recall("tea", entity="Alice", rendered=True)
    assert answer["card_stale"] is True
    assert "green tea" not in answer["rendered"]
    assert [one["id"] for one in answer["results"]] == [kept]


def test_20_3_4_a_card_goes_into_a_prompt_only_where_the_budget_has_room(world: World) -> None:
    world.fact("Alice", "drinks", "green tea")
    (card,) = built(world.robin, "Alice")
    size = len(card["value"]["v"].encode()) // 4 + 1
    for budget, there in ((43 + FRAME_TOKENS + size, True), (42 + FRAME_TOKENS + size - 20, False)):
        answer = world.recall("tea", entity="Alice", rendered=True, token_budget=budget)
        assert len(answer["results"]) == 1
        assert answer["memory_card"] == card
        assert ("# Alice" in answer["rendered"]) is there


def test_20_4_5_what_a_card_does_not_tell_yet_is_among_the_facts_and_marked(world: World) -> None:
    known = world.fact("Alice", "drinks", "green tea")
    built(world.robin, "Alice")
    newer = world.fact("Alice", "plays", "chess", confidence=0.4)
    answer = world.recall("tea", entity="Alice")
    assert answer["card_stale"] is True
    assert answer["memory_card"]["card_stale"] is True
    assert {one["id"]: one["card_stale"] for one in answer["results"]} == {known: False, newer: True}


def test_20_4_5_what_contradicts_a_card_is_there_even_when_it_is_the_less_sure(world: World) -> None:
    known = world.fact("Alice", "born in", "Paris", confidence=0.9)
    built(world.robin, "Alice")
    newer = [world.fact("Alice", "born in", f"town {number}", confidence=0.5) for number in range(9)]
    answer = world.recall("born", entity="Alice")
    marked = {one["id"]: one["card_stale"] for one in answer["results"]}
    assert marked == {known: False, **dict.fromkeys(newer, True)}


def test_20_4_4_beside_a_stale_card_stand_ten_facts_those_first_that_it_does_not_tell(world: World) -> None:
    notes = {world.note(f"She had green tea on day {number}.") for number in range(3)}
    known = [
        world.fact("Alice", f"drinks {number}", "green tea", evidence=[note])
        for number, note in enumerate([*notes] * 5)
    ]
    built(world.robin, "Alice")
    fresh = world.recall("green tea", entity="Alice", token_budget=20_000)
    assert {one["id"] for one in fresh["results"]} == notes | set(known), "a card that is in step comes with all"
    newer = {world.fact("Alice", f"plays {number}", "chess", confidence=0.4) for number in range(3)}
    answer = world.recall("green tea", entity="Alice", token_budget=20_000)
    assert (answer["card_stale"], answer["truncated"]) == (True, True)
    facts = {one["id"] for one in answer["results"] if one["kind"] == "fact"}
    assert len(facts) == 10
    assert newer < facts < newer | set(known)
    assert {one["id"] for one in answer["results"]} - facts == notes
    newer |= {world.fact("Alice", f"sings {number}", "songs") for number in range(12)}
    found = world.found("green tea", entity="Alice", include=["facts"], token_budget=20_000)
    assert set(found) == newer, "20.4.5: whatever it does not tell is there"


def test_20_4_4_not_even_what_they_were_concluded_from_is_an_eleventh(world: World) -> None:
    sources = [fact(world.robin, "Bob", f"saw {number}", "tea")["fact_hash"] for number in range(4)]
    for number in range(9):
        world.fact("Alice", f"drinks {number}", "green tea")
    built(world.robin, "Alice")
    derived = world.fact("Alice", "likes", "green tea", derived_from=sources)
    ask: dict[str, Any]
    for ask, most in (({}, 10), ({"relation": "likes"}, 1)):
        found = world.found("green tea", entity="Alice", include=["facts"], token_budget=20_000, **ask)
        assert derived in found
        assert len(found) == most


@pytest.mark.parametrize("ask", [{"max_results": 1}, {"token_budget": 50}, {"max_results": 2}])
def test_20_4_5_and_it_is_there_however_little_room_there_is(
    new_world: Callable[..., World], ask: dict[str, Any]
) -> None:
    world = new_world()
    for number in range(8):
        world.fact("Alice", f"tea {number}", "green tea")
    built(world.robin, "Alice")
    newer = world.fact("Alice", "plays", "chess", confidence=0.4)
    answer = world.recall("green tea", entity="Alice", weights=LEXICAL, **ask)
    assert newer in {one["id"] for one in answer["results"]}
    scores = [one["score"] for one in answer["results"]]
    assert scores == sorted(scores, reverse=True)


def test_20_4_4_contradictions_on_request_with_the_card(world: World) -> None:
    both = {world.fact("Alice", "born in", "Paris"), world.fact("Alice", "born in", "Rome", confidence=0.8)}
    built(world.robin, "Alice")
    answer = world.recall("born", entity="Alice", include_contradicted=True)
    assert {one["id"] for one in answer["results"]} == both
    assert all(one["contradicted"] for one in answer["results"])
    assert answer["memory_card"] is not None
    assert len(world.recall("born", entity="Alice")["results"]) == 1


def test_20_4_3_a_card_is_made_anew_on_request(world: World) -> None:
    world.fact("Alice", "drinks", "green tea")
    built(world.robin, "Alice")
    world.fact("Alice", "plays", "chess")
    answer = world.recall("tea", entity="Alice", force_refresh=True)
    if "force_refresh_timeout" in answer:
        assert (answer["force_refresh_timeout"], answer["card_stale"]) == (True, True)
    else:
        assert "chess" in answer["memory_card"]["value"]["v"]
        assert "card_stale" not in answer


# Where it comes from


@pytest.fixture
def derived(world: World) -> dict[str, Any]:
    """A conclusion from two facts that the query does not find."""
    parents = [
        fact(world.robin, "Ann", "bought", "a ticket"),
        fact(world.robin, "Ben", "saw", "her board the ship"),
    ]
    hashes = [one["fact_hash"] for one in parents]
    child = fact(world.robin, "Cid", "concluded", "sailing", derived_from=[*hashes, "0" * 64])
    return {"world": world, "parents": parents, "child": child}


def sails(derived: dict[str, Any], **asks: Any) -> dict[str, Any]:
    return derived["world"].recall("sailing", include=["facts"], weights=LEXICAL, **asks)


def test_20_6_3_hashes_and_parents_come_with_a_conclusion(derived: dict[str, Any]) -> None:
    answer = sails(derived)
    child, *parents = answer["results"]
    assert child["id"] == derived["child"]["fact_id"]
    assert set(child["derived_from"]) == {*(one["fact_hash"] for one in derived["parents"]), "0" * 64}
    assert "provenance_of" not in child
    assert {one["id"] for one in parents} == {one["fact_id"] for one in derived["parents"]}
    assert {one["provenance_of"] for one in parents} == {child["id"]}
    # sailing: 7 bytes, a ticket: 8, her board the ship: 18
    assert answer["tokens_used"] == 42 + 42 + 45
    assert answer["truncated"] is False


def test_20_6_3_parents_are_omitted_when_the_budget_is_tight(derived: dict[str, Any]) -> None:
    alone = sails(derived, token_budget=42 + 41)
    assert [one["id"] for one in alone["results"]] == [derived["child"]["fact_id"]]
    assert len(alone["results"][0]["derived_from"]) == 3
    assert alone["tokens_used"] == 42
    one = sails(derived, token_budget=42 + 42)
    assert [found["id"] for found in one["results"][1:]] == [derived["parents"][0]["fact_id"]], "the one that fits"
    assert len(sails(derived, max_results=2)["results"]) == 2, "and there are never more than asked for"


def test_20_6_3_a_parent_that_was_found_itself_is_not_there_twice(derived: dict[str, Any]) -> None:
    world: World = derived["world"]
    answer = world.recall("sailing ticket", include=["facts"], weights=LEXICAL)
    ids = [one["id"] for one in answer["results"]]
    assert len(ids) == len(set(ids)) == 3
    marked = {one["id"]: one["provenance_of"] for one in answer["results"] if "provenance_of" in one}
    assert marked == dict.fromkeys((one["fact_id"] for one in derived["parents"]), derived["child"]["fact_id"])


PARENTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "over": ({"valid_from": "2020-01-01T00:00:00Z", "valid_to": "2021-01-01T00:00:00Z"}, {}),
    "to come": ({"valid_from": "2990-01-01T00:00:00Z"}, {}),
    "not so at that time": ({"valid_to": "2990-01-01T00:00:00Z"}, {"valid_at": "2999-01-01T00:00:00Z"}),
    "of another scope": ({"scope": "agent_private"}, {"scope": "project_shared"}),
    "of another relation": ({}, {"relation": "concluded"}),
}


@pytest.mark.parametrize("case", PARENTS)
def test_20_6_3_a_parent_is_what_was_asked_for_or_is_none(world: World, case: str) -> None:
    said, asked = PARENTS[case]
    good = fact(world.robin, "Ann", "bought", "a ticket")
    other = fact(world.robin, "Ben", "saw", "her board the ship", **said)
    hashes = [good["fact_hash"], other["fact_hash"]]
    child = fact(world.robin, "Cid", "concluded", "sailing", derived_from=hashes)["fact_id"]
    found = world.found("sailing", include=["facts"], weights=LEXICAL, **asked)
    assert found == ([child] if "relation" in asked else [child, good["fact_id"]])


def test_20_6_3_of_contradicting_parents_the_preferred_one_alone(world: World) -> None:
    sure = fact(world.robin, "Ann", "born in", "Paris", confidence=0.9)
    less = fact(world.robin, "Ann", "born in", "Rome", confidence=0.5)
    hashes = [sure["fact_hash"], less["fact_hash"]]
    child = fact(world.robin, "Cid", "concluded", "sailing", derived_from=hashes)["fact_id"]
    ask: dict[str, Any] = {"include": ["facts"], "weights": LEXICAL}
    assert world.found("sailing", **ask) == [child, sure["fact_id"]]
    both = world.found("sailing", include_contradicted=True, **ask)
    assert set(both) == {child, sure["fact_id"], less["fact_id"]}


def test_20_6_3_what_was_taken_back_or_is_not_trusted_does_not_come_back_as_a_parent(derived: dict[str, Any]) -> None:
    world: World = derived["world"]
    first, second = derived["parents"]
    answer = world.robin.post(f"/v1/facts/{first['fact_id']}/retract", json={"reason": "wrong"})
    assert answer.status_code == 200, answer.text
    assert {one["id"] for one in sails(derived)["results"][1:]} == {second["fact_id"]}
    assert world.admin.patch("/v1/admin/projects/default", json={"trust_mode": "enforce"}).status_code == 200
    world.superuser.execute("UPDATE graph_facts SET source_trust = 1 WHERE tenant_id = %s", (world.tenant_id,))
    world.superuser.execute("UPDATE graph_facts SET source_trust = 0.1 WHERE fact_id = %s", (second["fact_id"],))
    assert sails(derived)["results"][1:] == []
    assert len(sails(derived, include_low_trust=True)["results"]) == 2


def test_20_6_3_what_one_may_not_read_is_no_parent(world: World) -> None:
    hidden = fact(world.wren, "Ann", "bought", "a ticket", scope="agent_private")
    child = fact(world.robin, "Cid", "concluded", "sailing", derived_from=[hidden["fact_hash"]])
    assert world.found("sailing", include=["facts"]) == [child["fact_id"]]
