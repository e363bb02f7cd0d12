"""Recall at two times: what is not valid or not known then is not there, in any channel (TIME; design, section 3)."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.erasure.shared import tombstone
from tests.facts.shared import error, predicate
from tests.recall.shared import LEXICAL, VECTOR, World, edge

DEFAULTS = {"lexical": 0.3, "vector": 0.5, "graph": 0.2}
WORDS_AND_GRAPH = {"lexical": 0.5, "graph": 0.5}
CHANNELS = [LEXICAL, VECTOR, WORDS_AND_GRAPH, DEFAULTS]
QUERY = "the mill by the river"


def facts_found(world: World, **asks: Any) -> dict[str, list[str]]:
    """What each way of asking finds, by its weights."""
    return {
        str(weights): sorted(world.found(QUERY, include=["facts"], weights=weights, **asks)) for weights in CHANNELS
    }


def everywhere(*ids: str) -> dict[str, list[str]]:
    return {str(weights): sorted(ids) for weights in CHANNELS}


@pytest.fixture(scope="module")
def mill(new_world: Callable[..., World]) -> dict[str, Any]:
    """Alice worked at one mill and then at another; what is known of her changed several times."""
    world = new_world()
    predicate(world.admin, name="works at", cardinality="single", status="active")
    told: dict[str, Any] = {"world": world, "before": world.now()}
    told["old"] = world.fact("Alice", "works at", "the old mill by the river", valid_from="2020-01-01T00:00:00Z")
    told["gone"] = world.fact("Alice", "owns", "half of a mill", confidence=0.6)
    told["first"] = world.now()
    told["new"] = world.fact("Alice", "works at", "the new mill by the river")
    world.robin.post(f"/v1/facts/{told['gone']}/retract", json={"reason": "wrong"})
    told["second"] = world.now()
    told["future"] = world.fact("Bob", "buys", "a mill by the river", valid_from="2999-01-01T00:00:00Z")
    for turn, name in enumerate(("old", "gone", "new", "future")):
        world.place(told[name], QUERY, 0.8 - turn / 10, turn=turn)
    return told


def test_now_neither_superseded_nor_retracted_nor_future_facts(mill: dict[str, Any]) -> None:
    assert facts_found(mill["world"]) == everywhere(mill["new"])


def test_as_of_before_anything_was_known_nothing(mill: dict[str, Any]) -> None:
    assert facts_found(mill["world"], as_of=mill["before"]) == everywhere()
    assert facts_found(mill["world"], as_of=mill["before"], valid_at=mill["second"]) == everywhere()


def test_as_of_what_was_known_then_before_it_was_superseded_and_retracted(mill: dict[str, Any]) -> None:
    world: World = mill["world"]
    assert facts_found(world, as_of=mill["first"]) == everywhere(mill["old"], mill["gone"])
    answer = world.recall(QUERY, include=["facts"], as_of=mill["first"])
    shown = {one["id"]: one for one in answer["results"]}
    assert shown[mill["old"]]["valid_to"] is None, "its end was not known yet"
    assert (shown[mill["gone"]]["confidence"], shown[mill["gone"]]["retracted_at"]) == (0.6, None)


def test_valid_at_what_was_so_as_it_is_known_now(mill: dict[str, Any]) -> None:
    world: World = mill["world"]
    assert facts_found(world, valid_at="2021-06-01T00:00:00Z") == everywhere(mill["old"])
    assert facts_found(world, valid_at="2019-06-01T00:00:00Z") == everywhere()
    assert facts_found(world, valid_at="2999-06-01T00:00:00Z") == everywhere(mill["new"], mill["future"])


def test_both_times_are_judged_each_by_itself(mill: dict[str, Any]) -> None:
    world: World = mill["world"]
    past = "2021-06-01T00:00:00Z"
    assert facts_found(world, as_of=mill["first"], valid_at=past) == everywhere(mill["old"])
    assert facts_found(world, as_of=mill["second"], valid_at="2999-06-01T00:00:00Z") == everywhere(mill["new"])


def test_an_entity_is_read_at_two_times_too(mill: dict[str, Any]) -> None:
    world: World = mill["world"]

    def alice(**asks: Any) -> set[str]:
        return set(world.found(QUERY, entity="Alice", include=["facts"], **asks))

    assert alice() == {mill["new"]}
    assert alice(as_of=mill["first"]) == {mill["old"], mill["gone"]}
    assert alice(valid_at="2021-06-01T00:00:00Z") == {mill["old"]}
    assert alice(as_of=mill["before"]) == set()


# The graph


def test_who_was_merged_into_somebody_younger_is_found_at_a_time_before(world: World) -> None:
    said = world.fact("Mold", "grows on", "bread")
    led = world.fact("Mold", "lives in", {"entity": "Cellar"})
    then = world.now()
    younger = world.fact("Fungus", "is", "a kingdom")
    ids = {
        name: world.robin.get("/v1/entities", params={"prefix": name}).json()["entities"][0]["entity_id"]
        for name in ("Mold", "Fungus")
    }
    answer = world.admin.post(f"/v1/entities/{ids['Mold']}/merge", json={"into": ids["Fungus"]})
    assert answer.status_code == 200, answer.text
    for name in ("Mold", "Fungus", ids["Fungus"]):
        assert set(world.found("bread", entity=name, as_of=then)) == {said, led}, name
        assert set(world.found("bread", entity=name)) == {said, led, younger}, name
        near = world.robin.get("/v1/graph/neighbors", params={"entity": name, "as_of": then})
        assert [one["entity"]["canonical"] for one in near.json()["neighbors"]] == ["Cellar"], name


def test_what_was_learned_later_leads_nowhere_then(world: World) -> None:
    jazz = world.fact("Alice", "likes", "jazz")
    then = world.now()
    hikes = world.fact("Alice", "enjoys", "hiking")
    world.place(hikes, "hiking", 0.9)
    for weights in (WORDS_AND_GRAPH, {"vector": 0.5, "graph": 0.5}):
        assert set(world.found("hiking", include=["facts"], weights=weights)) == {hikes, jazz}
        assert world.found("hiking", include=["facts"], weights=weights, as_of=then) == []


def test_what_is_no_longer_so_leads_nowhere(world: World) -> None:
    predicate(world.admin, name="lives in", cardinality="single", status="active")
    old = world.fact("Alice", "lives in", edge("Oldtown"), valid_from="2020-01-01T00:00:00Z")
    world.fact("Alice", "lives in", edge("Newtown"))
    known = world.fact("Oldtown", "has", "a harbour", valid_from="2019-01-01T00:00:00Z")
    lost = world.fact("Bob", "lives in", edge("Oldtown"))
    world.robin.post(f"/v1/facts/{lost}/retract", json={"reason": "wrong"})
    for turn, one in enumerate((old, lost)):
        world.place(one, "ships", 0.9 - turn / 10, turn=turn)
    weights = {"vector": 0.5, "graph": 0.5}
    assert known not in world.found("ships", include=["facts"], weights=weights)
    assert known in world.found("ships", include=["facts"], weights=weights, valid_at="2021-01-01T00:00:00Z")


def test_graph_scores_at_a_past_time_do_not_change_with_later_edges(world: World) -> None:
    world.fact("Alice", "enjoys", "hiking")
    world.fact("Alice", "knows", edge("Bob"))
    world.fact("Bob", "likes", "jazz")
    then = world.now()

    def graph(**asks: Any) -> dict[str, float]:
        found = world.scores("hiking", include=["facts"], weights=WORDS_AND_GRAPH, **asks)
        return {one: scores["graph_raw"] for one, scores in found.items()}

    before = graph()
    assert len(before) == 3
    assert graph(as_of=then) == pytest.approx(before)
    for name in ("Carol", "Dave", "Eve"):
        world.fact("Alice", "knows", edge(name))
    assert max(graph().values()) < max(before.values()), "now she is a hub"
    assert graph(as_of=then) == pytest.approx(before)


# What salience asks


def test_confidence_and_doubt_are_those_of_that_time(world: World) -> None:
    known = world.fact("Alice", "born in", "Paris", confidence=0.4)
    then = world.now()
    world.fact("Alice", "born in", "Paris", confidence=1.0)
    world.fact("Alice", "born in", "Rome", confidence=0.1)
    now = world.scores("Paris", include=["facts"], weights=LEXICAL)[known]
    assert now["salience"] == pytest.approx(0.7 * 0.7, abs=1e-6), "asserted twice, and contradicted"
    past = world.scores("Paris", include=["facts"], weights=LEXICAL, as_of=then)[known]
    assert past["salience"] == pytest.approx(0.4, abs=1e-6)
    assert world.found("Paris", include=["facts"], min_confidence=0.5) == [known]
    assert world.found("Paris", include=["facts"], min_confidence=0.5, as_of=then) == []
    (shown,) = world.recall("Paris", include=["facts"], as_of=then)["results"]
    assert (shown["confidence"], shown["contradicted"]) == (0.4, False)


def test_age_counts_up_to_that_time(world: World) -> None:
    known = world.fact("Alice", "born in", "Paris")
    world.age(known, 100)
    then = world.one("SELECT clock_timestamp() - interval '40 days'").isoformat()
    scores = world.scores("Paris", include=["facts"], weights=LEXICAL, as_of=then)
    assert scores[known]["salience"] == pytest.approx(0.5488116, abs=1e-5), "e^-.6"


# Notes


def test_a_note_says_at_a_past_time_what_it_said_then(world: World) -> None:
    note = world.note("The ferry to Madeira leaves at nine.")
    world.place(note, "ferry", 0.8)
    then = world.now()
    answer = world.robin.patch(
        f"/v1/notes/{note}", json={"content": "The ferry to Madeira leaves at ten.", "reason": "new plan"}
    )
    assert answer.status_code == 200, answer.text
    for weights in (LEXICAL, VECTOR):
        (now,) = world.recall("ferry", weights=weights)["results"]
        assert (now["id"], now["content"][-4:]) == (note, "ten.")
    (past,) = world.recall("ferry", weights=LEXICAL, as_of=then)["results"]
    assert (past["id"], past["content"][-5:]) == (note, "nine.")
    assert world.found("nine", weights=LEXICAL, as_of=then) == [note], "it is found by what it said"
    assert world.found("ten", weights=LEXICAL, as_of=then) == [], "and not by what it was to say"
    assert world.found("nine", weights=LEXICAL) == []


def patch(world: World, note: str, **fields: Any) -> None:
    answer = world.robin.patch(f"/v1/notes/{note}", json={"reason": "another try", **fields})
    assert answer.status_code == 200, answer.text


def test_a_note_has_at_a_past_time_the_author_the_tags_and_the_time_of_then(world: World) -> None:
    given = {"author": "Treasurer Ann", "tags": ["money", "q3"], "occurred_at": "2024-05-01T00:00:00Z"}
    note = world.note("I approve the transfer of 5000 euros.", **given)
    then = world.now()
    patch(world, note, author="Intern Bo", tags=["edited"], type="decision")
    middle = world.now()
    patch(world, note, author=None, tags=[], occurred_at="2020-01-01T00:00:00Z", content="I approve of cake.")

    def seen(**asks: Any) -> tuple[Any, ...]:
        (one,) = world.recall("approve", weights=LEXICAL, **asks)["results"]
        return one["author"], one["tags"], one["type"], one["occurred_at"][:10], one["content"][-6:]

    assert seen(as_of=then) == ("Treasurer Ann", ["money", "q3"], "semantic", "2024-05-01", "euros.")
    assert seen(as_of=middle) == ("Intern Bo", ["edited"], "decision", "2024-05-01", "euros.")
    assert seen() == (None, [], "decision", "2020-01-01", " cake.")
    assert world.found("treasurer q3", weights=LEXICAL, as_of=then) == [note], "found by the words of then"
    assert world.found("treasurer", weights=LEXICAL, as_of=middle) == []
    events = world.robin.get(f"/v1/notes/{note}/history").json()["events"]
    assert [event["before"] for event in events] == [
        None,
        {"author": "Treasurer Ann", "tags": ["money", "q3"], "type": "semantic"},
        {"author": "Intern Bo", "tags": ["edited"], "occurred_at": "2024-05-01T00:00:00Z"},
    ]


def test_a_vector_counts_as_long_as_it_is_of_the_words_that_are_asked_for(world: World) -> None:
    note = world.note("The herring is kept in the cellar.")
    world.place(note, "fish", 0.8)
    then = world.now()

    def cosine(**asks: Any) -> float | None:
        return world.scores("fish", include=["notes"], **asks).get(note, {}).get("cosine")

    patch(world, note, pinned=True)
    patch(world, note, tags=["food"])
    assert cosine() == pytest.approx(0.8, abs=1e-4), "its words are the same"
    assert cosine(as_of=then) == pytest.approx(0.8, abs=1e-4)
    patch(world, note, content="The herring is gone.")
    assert cosine() is None, "the vector is of words it no longer says"
    assert cosine(as_of=then) is None, "nor is it told apart by what is to come"
    patch(world, note, content="The herring is kept in the cellar.")
    assert cosine() == pytest.approx(0.8, abs=1e-4)


def test_deleted_notes_are_there_only_before_they_were_deleted(world: World) -> None:
    before = world.now()
    turns = [
        world.note(text, thread_id="talk", position=place)
        for place, text in enumerate(("Where does it go?", "The ferry goes to Madeira.", "How lovely."))
    ]
    then = world.now()
    full = world.scores("ferry", include=["notes"], weights=LEXICAL)
    assert set(full) == set(turns)
    assert world.robin.delete(f"/v1/notes/{turns[1]}", params={"reason": "wrong"}).status_code == 204
    assert world.found("ferry", weights=LEXICAL) == [], "it lends nothing to its neighbours either"
    past = world.scores("ferry", include=["notes"], weights=LEXICAL, as_of=then)
    assert set(past) == set(turns)
    assert world.found("ferry", weights=LEXICAL, as_of=before) == []
    gone = world.now()
    assert world.robin.post(f"/v1/notes/{turns[1]}/recover", json={"reason": "right"}).status_code == 200
    assert set(world.found("ferry", weights=LEXICAL)) == set(turns)
    assert turns[1] not in world.found("ferry", weights=LEXICAL, as_of=gone), "it was away then"
    assert turns[1] in world.found("ferry", weights=LEXICAL, as_of=then)
    back = world.now()
    assert world.robin.delete(f"/v1/notes/{turns[1]}", params={"reason": "wrong"}).status_code == 204
    assert turns[1] not in world.found("ferry", weights=LEXICAL, as_of=gone)
    assert turns[1] in world.found("ferry", weights=LEXICAL, as_of=back)


def test_words_that_stand_nowhere_any_more_find_what_they_found_then(world: World) -> None:
    fact, note = world.fact("Alice", "visited", "Timbuktu"), world.note("Nothing but Timbuktu.")
    then = world.now()
    assert world.robin.post(f"/v1/facts/{fact}/retract", json={"reason": "wrong"}).status_code == 200
    assert world.robin.delete(f"/v1/notes/{note}", params={"reason": "wrong"}).status_code == 204
    assert world.found("Timbuktu", weights=LEXICAL) == []
    assert set(world.found("Timbuktu", weights=LEXICAL, as_of=then)) == {fact, note}


def test_the_floor_of_a_project_holds_for_recall(world: World) -> None:
    world.note("ferry")
    floor = world.now()
    assert world.admin.patch("/v1/admin/projects/default", json={"as_of_floor": floor}).status_code == 200
    early = {"query": "ferry", "as_of": "2020-01-01T00:00:00Z"}
    for include in (["facts"], ["notes"]):
        refused = world.robin.post("/v1/recall", json={**early, "include": include})
        assert error(refused) == (400, "as_of_before_retention_floor")
    assert world.robin.post("/v1/recall", json={**early, "as_of": world.now()}).status_code == 200


def test_under_a_legal_hold_administrators_look_back_and_are_told(world: World) -> None:
    known = world.fact("Mallory", "runs", "the mill by the river")
    made = tombstone(world.admin, "Mallory", legal_hold=True)
    for weights in (LEXICAL, WORDS_AND_GRAPH, DEFAULTS):
        assert world.found(QUERY, weights=weights) == []
        assert world.found(QUERY, by=world.admin, weights=weights) == []
        assert world.found(QUERY, weights=weights, as_of=world.now()) == []
        answer = world.recall(QUERY, by=world.admin, weights=weights, as_of=world.now())
        assert [one["id"] for one in answer["results"]] == [known]
        assert [one["tombstone_id"] for one in answer["tombstone_notices"]] == [made["tombstone_id"]]
