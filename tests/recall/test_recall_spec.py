"""Ranking over HTTP, against numbers worked out by hand (RECALL 20.2.6, 20.3.3, 20.3.4, 20.3.6)."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from tests.facts.shared import predicate
from tests.recall.shared import GRAPH, LEXICAL, VECTOR, World, asked, edge

DEFAULTS = {"lexical": 0.3, "vector": 0.5, "graph": 0.2}
# Requests take a moment, in which facts grow older.
NEAR = 1e-6


def bm25(*, total: int, documents: int, tf: int, length: int, average: float) -> float:
    """k1 .9, b .6."""
    idf = math.log(1 + (total - documents + 0.5) / (documents + 0.5))
    return idf * tf * 1.9 / (tf + 0.9 * (0.4 + 0.6 * length / average))


# The channels


def test_20_3_3_lexical_is_bm25_over_terms_joined_by_or(world: World) -> None:
    first = world.fact("Alice", "drinks", "green tea")  # alice drink green tea: 4
    second = world.fact("Carol", "owns", "a tea shop in the old town")  # carol own tea shop old town: 6
    third = world.fact("Bob", "sells", "tea, tea and more tea")  # bob sell tea tea more tea: 5, and no more
    world.fact("Dave", "drinks", "black coffee")  # 4
    length = {"third": world.one("SELECT terms_length FROM graph_facts WHERE fact_id = %s", third)}
    average = (4 + 6 + length["third"] + 4) / 4
    found = world.scores("the tea of strangers", include=["facts"], weights=LEXICAL, depth=0)
    expected = {
        first: bm25(total=4, documents=3, tf=1, length=4, average=average),
        second: bm25(total=4, documents=3, tf=1, length=6, average=average),
        third: bm25(total=4, documents=3, tf=3, length=length["third"], average=average),
    }
    assert {one: found[one]["lexical_raw"] for one in found} == pytest.approx(expected)
    best = max(expected.values())
    assert {one: found[one]["lexical"] for one in found} == pytest.approx(
        {one: score / best for one, score in expected.items()}
    )
    assert {one: found[one]["score"] for one in found} == pytest.approx(
        {one: score / best for one, score in expected.items()}, abs=NEAR
    )


def test_20_3_3_lexical_scores_of_notes_in_a_thread_count_their_neighbours(world: World) -> None:
    when = "2024-03-05T10:00:00Z"  # 5 march 2024: 3 terms more
    turns = ["where did the ferry sail", "to Madeira", "lovely weather there"]
    ids = [
        world.note(text, thread_id="talk", position=place, occurred_at=when, author="Ann")
        for place, text in enumerate(turns)
    ]
    lengths = [world.one("SELECT terms_length FROM memory_notes WHERE note_id = %s", one) for one in ids]
    assert lengths == [6, 5, 6]
    found = world.scores("Madeira", include=["notes"], weights=LEXICAL)
    # One of three notes has it; a neighbour after counts .5 and .25, one before .6 and .36; a whole window 3.051.
    idf = math.log(1 + 2.5 / 1.5)
    usual = 17 / 3 * 3.051

    def score(tf: float, length: float) -> float:
        return idf * tf * 1.9 / (tf + 0.9 * (0.4 + 0.6 * length / usual))

    expected = [
        score(0.5, 6 + 0.5 * 5 + 0.25 * 6),
        score(1.0, 5 + 0.6 * 6 + 0.5 * 6),
        score(0.6, 6 + 0.6 * 5 + 0.36 * 6),
    ]
    assert [found[one]["lexical_raw"] for one in ids] == pytest.approx(expected)


def test_20_3_3_vector_is_the_cosine_lifted_and_divided_by_the_best(world: World) -> None:
    query = "something about boats"
    near, far, none = (world.fact("Alice", "says", text) for text in ("one", "two", "three"))
    world.place(near, query, 0.8)
    world.place(far, query, 0.35, turn=1)
    found = world.scores(query, include=["facts"], weights=VECTOR, include_contradicted=True)
    assert found[near]["cosine"] == pytest.approx(0.8, abs=1e-5)
    assert found[far]["cosine"] == pytest.approx(0.35, abs=1e-5)
    assert found[near]["vector"] == pytest.approx(1.0)
    assert found[far]["vector"] == pytest.approx((0.35 + 0.15) / (0.8 + 0.15), abs=1e-5)
    assert none not in found or found[none]["cosine"] is None


@pytest.fixture(scope="module")
def friends(new_world: Callable[..., World]) -> dict[str, Any]:
    """A little graph: Alice knows Bob and Carol, Dave knows Alice, Bob lives in Paris."""
    world = new_world()
    named = {
        "hikes": world.fact("Alice", "enjoys", "hiking"),
        "bob": world.fact("Alice", "knows", edge("Bob"), confidence=0.8),
        "carol": world.fact("Alice", "knows", edge("Carol"), confidence=0.6),
        "dave": world.fact("Dave", "admires", edge("Alice"), confidence=0.9),
        "jazz": world.fact("Bob", "likes", "jazz"),
        "opera": world.fact("Carol", "likes", "opera"),
        "chess": world.fact("Dave", "plays", "chess"),
        "paris": world.fact("Bob", "lives in", edge("Paris"), confidence=0.7),
        "seine": world.fact("Paris", "lies on", "the Seine"),
    }
    return {"world": world, **named}


def test_20_3_3_graph_score_by_hand_with_its_guard_against_hubs(friends: dict[str, Any]) -> None:
    world: World = friends["world"]
    weights = {"lexical": 0.5, "graph": 0.5}
    found = world.scores("hiking", include=["facts"], weights=weights, depth=2)
    # Two edges go out from Alice, one from Dave, one from Bob.
    expected = {
        "hikes": 1 / math.log(3),
        "bob": 1 / math.log(3),
        "carol": 1 / math.log(3),
        "jazz": 1 / 2 * 0.8 / math.log(3),
        "paris": 1 / 2 * 0.8 / math.log(3),
        "opera": 1 / 2 * 0.6 / math.log(3),
        "dave": 1 / 2 * 0.9 / math.log(2),
        "chess": 1 / 2 * 0.9 / math.log(2),
        "seine": 1 / 3 * 0.7 / math.log(2),
    }
    assert {name: found[friends[name]]["graph_raw"] for name in expected} == pytest.approx(expected)
    best = 1 / math.log(3)
    for name, raw in expected.items():
        one = found[friends[name]]
        assert one["graph"] == pytest.approx(raw / best)
        assert one["raw_score"] == pytest.approx(0.5 * one["lexical"] + 0.5 * raw / best)
    answer = world.recall("hiking", include=["facts"], weights=weights, depth=2, lambda_mmr=1)
    hops = {one["id"]: one["hops"] for one in answer["results"]}
    assert {name: hops[friends[name]] for name in expected} == {
        **dict.fromkeys(("hikes", "bob", "carol"), 0),
        **dict.fromkeys(("jazz", "paris", "opera", "dave", "chess"), 1),
        "seine": 2,
    }


def test_20_3_3_depth_bounds_the_walk(friends: dict[str, Any]) -> None:
    world: World = friends["world"]
    weights = {"lexical": 0.5, "graph": 0.5}
    one = world.found("hiking", include=["facts"], weights=weights, depth=1, lambda_mmr=1)
    assert friends["jazz"] in one
    assert friends["seine"] not in one
    assert world.found("hiking", include=["facts"], weights=weights, depth=0, lambda_mmr=1) == [friends["hikes"]]
    assert world.found("hiking", include=["facts"], weights=LEXICAL, depth=2, lambda_mmr=1) == [friends["hikes"]]


def test_20_3_3_edges_below_min_confidence_are_not_walked(friends: dict[str, Any]) -> None:
    world: World = friends["world"]
    weights = {"lexical": 0.5, "graph": 0.5}
    found = world.found("hiking", include=["facts"], weights=weights, depth=2, min_confidence=0.75, lambda_mmr=1)
    assert friends["jazz"] in found
    assert friends["opera"] not in found, "Carol is known with .6 only"
    assert friends["seine"] not in found


def test_20_3_3_the_more_edges_a_hub_has_the_less_each_counts(new_world: Callable[..., World]) -> None:
    scores: list[float] = []
    for count in (1, 6):
        world = new_world()
        world.fact("Hub", "enjoys", "hiking")
        for number in range(count):
            world.fact("Hub", "knows", edge(f"friend {number}"))
        far = world.fact("friend 0", "likes", "jazz")
        found = world.scores("hiking", include=["facts"], weights={"lexical": 0.5, "graph": 0.5})
        scores.append(found[far]["graph_raw"])
    assert scores == pytest.approx([0.5 / math.log(2), 0.5 / math.log(7)])


# The formula


def test_20_3_3_raw_score_and_score_by_the_formula(world: World) -> None:
    query = "green tea in the morning"
    ids = [
        world.fact("Alice", "drinks", "green tea", confidence=0.9),
        world.fact("Alice", "lives in", edge("Morning Town"), confidence=0.7),
        world.fact("Morning Town", "has", "green hills", confidence=0.5),
        world.fact("Bob", "drinks", "coffee", confidence=0.8),
    ]
    for turn, (one, cosine) in enumerate(zip(ids, (0.9, 0.4, 0.2, 0.1), strict=True)):
        world.place(one, query, cosine, turn=turn)
    world.age(ids[0], 10)
    world.age(ids[1], 100)
    world.superuser.execute(
        "UPDATE graph_facts SET access_count = CASE fact_id WHEN %s THEN 7 WHEN %s THEN 3 ELSE 0 END "
        "WHERE tenant_id = %s",
        (ids[1], ids[3], world.tenant_id),
    )
    found = world.scores(query, include=["facts"], weights=DEFAULTS, min_confidence=0)
    assert set(found) == set(ids)
    for one in found.values():
        assert one["raw_score"] == pytest.approx(0.3 * one["lexical"] + 0.5 * one["vector"] + 0.2 * one["graph"])
        assert one["score"] == pytest.approx(one["raw_score"] * one["salience"] * one["source_trust_multiplier"])
        assert one["source_trust_multiplier"] == 1.0, "nobody judges sources here"
    # Age, confidence, accesses out of 7: ln 4 / ln 8 is two thirds.
    expected = [math.exp(-0.1) * 0.9 * 0.5, math.exp(-1) * 0.7, 0.5 * 0.5, 0.8 * (0.5 + 0.5 * 2 / 3)]
    assert [found[one]["salience"] for one in ids] == pytest.approx(expected, abs=NEAR)


def test_20_6_3_each_conclusion_on_the_way_costs_a_tenth(world: World) -> None:
    said = world.robin.post(
        "/v1/facts", json={"subject": "Ann", "predicate": "said", "object": {"value": "she sails"}}
    ).json()["fact"]
    chain = [said]
    for step in ("first", "second"):
        chain.append(
            world.robin.post(
                "/v1/facts",
                json={
                    "subject": f"Ann {step}",
                    "predicate": "concluded",
                    "object": {"value": "sails"},
                    "confidence": 0.8,
                    "derived_from": [chain[-1]["fact_hash"]],
                },
            ).json()["fact"]
        )
    found = world.scores("sails", include=["facts"], weights=LEXICAL)
    weights = [found[one["fact_id"]]["salience"] for one in chain]
    assert weights == pytest.approx([1.0, 0.8 * 0.9, 0.8 * 0.81], abs=NEAR)


def test_notes_keep_their_raw_score_unless_recency_is_asked_for(world: World) -> None:
    old = world.note("The harbour was full of boats.", occurred_at="2020-01-01T00:00:00Z")
    new = world.note("A harbour without any boats.")
    found = world.scores("harbour boats", include=["notes"], weights=LEXICAL)
    assert {one["salience"] for one in found.values()} == {1.0}
    assert found[old]["score"] == pytest.approx(found[old]["raw_score"])
    days = world.one("SELECT extract(epoch FROM now() - '2020-01-01T00:00:00Z') / 86400")
    faded = world.scores("harbour boats", include=["notes"], weights=LEXICAL, recency=True)
    assert faded[old]["salience"] == pytest.approx(math.exp(-0.01 * float(days)), rel=1e-4)
    assert faded[old]["score"] == pytest.approx(found[old]["score"] * math.exp(-0.01 * float(days)), rel=1e-4)
    assert faded[new]["score"] == pytest.approx(found[new]["score"], rel=1e-4)
    answer = world.recall("harbour boats", include=["notes"], weights=LEXICAL, recency=True)
    assert [one["id"] for one in answer["results"]] == [new, old]


def test_fusion_by_ranks_on_request(world: World) -> None:
    query = "green tea"
    first = world.fact("Alice", "drinks", "green tea and green tea")
    second = world.fact("Bob", "drinks", "green tea in the evening at home")
    third = world.fact("Carol", "likes", "pancakes")
    for turn, (one, cosine) in enumerate(((first, 0.2), (second, 0.5), (third, 0.9))):
        world.place(one, query, cosine, turn=turn)
    weights = {"lexical": 0.4, "vector": 0.6}
    found = world.scores(query, include=["facts"], weights=weights, fusion="rrf")
    # By words: first, second, not at all; by meaning: third, second, first.
    assert [found[one]["raw_score"] for one in (first, second, third)] == pytest.approx(
        [0.4 + 0.6 * 61 / 63, 0.4 * 61 / 62 + 0.6 * 61 / 62, 0.6]
    )
    assert asked(world.robin, query=query, fusion="rrf")["meta"]["fusion"] == "rrf:v1"


def test_20_3_5_a_recalled_fact_can_be_written_back(world: World) -> None:
    made = [
        world.fact("Alice", "works at", edge("The Grand Hotel")),
        world.fact("Alice", "reads", edge("file:Some Dir/x")),
        world.fact("Alice", "drinks", "green tea"),
        world.fact("Alice", "is", {"value": 40}),
    ]
    results = world.recall("Alice", include=["facts"], entity="Alice")["results"]
    assert {one["id"] for one in results} == set(made)
    assert {one["value"]["type"] for one in results} == {"ref", "string", "number"}
    for one in results:
        again = {"entity": one["entity"], "relation": one["relation"], "object": one["value"], "scope": one["scope"]}
        answer = world.robin.post("/v1/facts", json=again)
        assert answer.status_code == 200, answer.text
        assert (answer.json()["outcome"], answer.json()["fact"]["fact_id"]) == ("reused", one["id"])
    assert len(world.recall("Alice", include=["facts"], entity="Alice")["results"]) == len(made)


# Trust and confidence


def judge(world: World, mode: str) -> None:
    assert world.admin.patch("/v1/admin/projects/default", json={"trust_mode": mode}).status_code == 200


def trust(world: World, fact_id: str, level: float) -> None:
    for statement in (
        "UPDATE graph_facts SET source_trust = %s WHERE tenant_id = %s AND fact_id = %s",
        "UPDATE entity_edges SET source_trust = %s WHERE tenant_id = %s AND edge_id = %s",
    ):
        world.superuser.execute(statement, (level, world.tenant_id, fact_id))


def test_20_3_6_what_is_trusted_too_little_is_left_out_of_every_channel(world: World) -> None:
    query = "green tea"
    judge(world, "enforce")
    good = world.fact("Alice", "drinks", "green tea", confidence=0.5)
    bad = world.fact("Bob", "drinks", "green tea with milk", confidence=0.49)
    for turn, one in enumerate((good, bad)):
        world.place(one, query, 0.9 - turn / 10, turn=turn)
        trust(world, one, 0.4)
    # .5 * .4 is not under .2; .49 * .4 is.
    for weights in (LEXICAL, VECTOR, {"lexical": 0.5, "graph": 0.5}, DEFAULTS):
        assert world.found(query, weights=weights) == [good], weights
        both = world.scores(query, weights=weights, include_low_trust=True)
        assert set(both) == {good, bad}, weights
        assert both[bad]["source_trust_multiplier"] == pytest.approx(0.5 + 0.5 * 0.4)
        assert both[bad]["score"] == pytest.approx(both[bad]["raw_score"] * both[bad]["salience"] * 0.7)
    assert world.found(query, entity="Bob") == []
    assert world.found(query, entity="Bob", include_low_trust=True) == [bad]


def test_20_3_6_a_blocklisted_source_is_not_recalled(world: World) -> None:
    judge(world, "enforce")
    answer = world.admin.put("/v1/sources", json={"source": "gossip", "blocklisted": True})
    assert answer.status_code == 201, answer.text
    world.fact("Bob", "drinks", "green tea", source="gossip")
    assert world.found("green tea") == []
    (told,) = world.recall("green tea", include_low_trust=True)["results"]
    assert told["source_trust"] == 0.0
    judge(world, "off")
    assert world.found("green tea") == [], "also where trust does not weigh"
    (scores,) = world.scores("green tea", include_low_trust=True).values()
    assert scores["source_trust_multiplier"] == 1.0


def test_20_3_6_trust_hides_nothing_where_it_is_off(world: World) -> None:
    query = "green tea"
    judge(world, "off")
    named = world.fact("Alice", "drinks", "green tea", source="some page", confidence=0.5)
    piped = world.fact("Bob", "drinks", "green tea", source="pipeline", confidence=0.15)
    plain = world.fact("Carol", "drinks", "green tea", confidence=0.15)
    path = world.fact("Alice", "knows", edge("Dave"), source="some page", confidence=0.5)
    far = world.fact("Dave", "likes", "jazz", source="some page", confidence=0.5)
    for turn, one in enumerate((named, piped, plain)):
        world.place(one, query, 0.9 - turn / 10, turn=turn)
    for weights in (LEXICAL, VECTOR, DEFAULTS):
        found = world.scores(query, weights=weights)
        assert {named, piped, plain} <= set(found), weights
        assert {one["source_trust_multiplier"] for one in found.values()} == {1.0}
    assert named in world.found(query, entity="Alice")
    near = world.found(query, weights={"lexical": 0.5, "graph": 0.5}, include=["facts"], lambda_mmr=1)
    assert {path, far} <= set(near), "edges too"
    judge(world, "warn")
    assert set(world.found(query, weights=LEXICAL)) == set(), "each is under .2 where trust counts"


def test_20_3_6_what_is_trusted_too_little_leads_nowhere(world: World) -> None:
    judge(world, "enforce")
    world.fact("Alice", "enjoys", "hiking")
    path = world.fact("Alice", "knows", edge("Bob"))
    told = world.fact("Alice", "enjoys", "hiking with", scope="public")
    rumour = world.fact("Carol", "hiking", edge("Dave"))
    far = world.fact("Bob", "likes", "jazz")
    further = world.fact("Dave", "likes", "opera")
    for one in (far, further, told):
        trust(world, one, 1.0)
    trust(world, path, 0.1)
    trust(world, rumour, 0.1)
    weights = {"lexical": 0.5, "graph": 0.5}
    found = world.found("hiking", include=["facts"], weights=weights, lambda_mmr=1)
    assert far not in found, "over an edge that is not trusted"
    assert further not in found, "from a fact that is not trusted"
    both = world.found("hiking", include=["facts"], weights=weights, lambda_mmr=1, include_low_trust=True)
    assert {far, further} <= set(both)


def test_20_3_6_an_edge_that_is_not_trusted_does_not_hide_one_that_is(world: World) -> None:
    judge(world, "enforce")
    world.fact("Alice", "enjoys", "hiking")
    trusted = world.fact("Alice", "knows", edge("Bob"), confidence=0.5)
    leaf = world.fact("Bob", "likes", "jazz")
    for one in (trusted, leaf):
        trust(world, one, 1.0)
    ask: dict[str, Any] = {"include": ["facts"], "weights": {"lexical": 0.5, "graph": 0.5}, "lambda_mmr": 1}
    assert leaf in world.found("hiking", **ask)
    rumour = world.fact("Alice", "adores", edge("Bob"), confidence=0.9)
    trust(world, rumour, 0.2)
    found = world.found("hiking", **ask)
    assert leaf in found
    assert rumour not in found


def test_20_3_3_whom_a_hit_leads_to_is_a_hop_away(world: World) -> None:
    first = world.fact("Ann", "likes", edge("Ben"))
    second = world.fact("Ben", "owns", edge("Cid"))
    third = world.fact("Cid", "wears", "red")
    ask: dict[str, Any] = {"include": ["facts"], "weights": {"lexical": 0.5, "graph": 0.5}, "lambda_mmr": 1}
    near = world.recall("Ann", depth=1, **ask)["results"]
    assert {one["id"]: one["hops"] for one in near} == {first: 0, second: 1}
    far = world.recall("Ann", depth=2, **ask)["results"]
    assert {one["id"]: one["hops"] for one in far} == {first: 0, second: 1, third: 2}


def test_20_3_3_what_stands_in_quarantine_counts_a_fifth(world: World) -> None:
    body = {"slug": "quarantine", "name": "Quarantine", "scope": "project_shared"}
    answer = world.robin.post("/v1/gardens", json=body)
    assert answer.status_code == 201, answer.text
    free = world.fact("Alice", "drinks", "green tea", confidence=1.0)
    held = world.fact("Bob", "drinks", "green tea", confidence=1.0, garden_id=answer.json()["garden"]["garden_id"])
    scores = world.scores("green tea", include=["facts"])
    assert scores[free]["salience"] == pytest.approx(1.0, abs=1e-4)
    assert scores[held]["salience"] == pytest.approx(0.2, abs=1e-4)


@pytest.mark.parametrize(("least", "count"), [(None, 2), (0.0, 3), (0.3, 2), (0.31, 1), (1.0, 0)])
def test_20_3_2_min_confidence(new_world: Callable[..., World], least: float | None, count: int) -> None:
    world = new_world()
    for name, confidence in (("Ann", 0.9), ("Ben", 0.3), ("Cid", 0.05)):
        world.fact(name, "drinks", "green tea", confidence=confidence)
    asks: dict[str, Any] = {} if least is None else {"min_confidence": least}
    assert len(world.found("green tea", include_low_trust=True, **asks)) == count


# Contradictions


def test_20_2_6_of_contradicting_facts_the_preferred_one_at_7_tenths(world: World) -> None:
    query = "where was Alice born?"
    sure = world.fact("Alice", "born in", "Paris", confidence=0.9)
    less = world.fact("Alice", "born in", "Rome", confidence=0.8)
    calm = world.fact("Alice", "born on", "a Tuesday", confidence=0.9)
    for turn, one in enumerate((sure, less, calm)):
        world.place(one, query, 0.8, turn=turn)
    both = world.scores(query, include=["facts"], include_contradicted=True)
    assert both[sure]["salience"] == pytest.approx(0.9 * 0.7, abs=NEAR)
    assert both[less]["salience"] == pytest.approx(0.8 * 0.7, abs=NEAR)
    assert both[calm]["salience"] == pytest.approx(0.9, abs=NEAR)
    for weights in (LEXICAL, VECTOR, DEFAULTS):
        answer = world.recall(query, include=["facts"], weights=weights, lambda_mmr=1)
        assert {one["id"]: one["contradicted"] for one in answer["results"]} == {sure: True, calm: False}, weights
        both = world.scores(query, include=["facts"], weights=weights, include_contradicted=True)
        assert set(both) == {sure, less, calm}
    kept = world.one("SELECT count(*) FROM embeddings WHERE tenant_id = %s", world.tenant_id)
    assert kept == 3, "both keep their vectors"
    (conflict,) = world.robin.get("/v1/conflicts").json()["conflicts"]
    answer = world.robin.post(f"/v1/conflicts/{conflict['conflict_id']}/resolve", json={"winner": less})
    assert answer.status_code == 200, answer.text
    after = world.recall(query, include=["facts"], weights=LEXICAL, lambda_mmr=1, debug=True)
    assert not any(one["contradicted"] for one in after["results"])
    told = {one["value"]["v"] for one in after["results"]}
    assert "Rome" in told
    assert "Paris" not in told, "the loser is history"


def test_of_equally_sure_facts_the_later_one_is_preferred(world: World) -> None:
    world.fact("Alice", "born in", "Paris", confidence=0.8)
    later = world.fact("Alice", "born in", "Rome", confidence=0.8)
    assert world.found("born", include=["facts"]) == [later]


# The budget


def test_20_3_4_tokens_used_is_the_sum_of_40_and_a_quarter_of_the_bytes(world: World) -> None:
    world.fact("Alice", "drinks", "grüner Tee 緑茶")  # 18 bytes
    world.fact("Alice", "visits", edge("https://example.com/shops/tee-laden"))  # tee-laden: 9
    world.fact("Tee", "costs", {"value": 12.5, "type": "number"})  # 12.5: 4
    world.fact("Tee", "is hot", {"value": True, "type": "boolean"})  # true: 4
    world.note("Tee ist heiß.")  # 14 bytes
    answer = world.recall("Tee", weights={"lexical": 0.5, "graph": 0.5})
    assert len(answer["results"]) == 5
    assert answer["tokens_used"] == (40 + 5) + (40 + 3) + (40 + 1) + (40 + 1) + (40 + 4)
    assert answer["truncated"] is False
    exact = world.recall("Tee", weights={"lexical": 0.5, "graph": 0.5}, token_budget=answer["tokens_used"])
    assert (len(exact["results"]), exact["truncated"]) == (5, False)
    short = world.recall("Tee", weights={"lexical": 0.5, "graph": 0.5}, token_budget=answer["tokens_used"] - 1)
    assert short["truncated"] is True
    assert short["tokens_used"] <= answer["tokens_used"] - 1


def test_20_3_4_an_empty_budget_answers_200_with_nothing_and_says_so(world: World) -> None:
    world.fact("Alice", "drinks", "green tea")
    world.note("green tea")
    ask: dict[str, Any]
    for ask in ({}, {"entity": "Alice"}, {"include": ["notes"]}):
        answer = world.recall("green tea", token_budget=1, **ask)
        assert (answer["results"], answer["tokens_used"], answer["truncated"]) == ([], 0, True)


@pytest.mark.parametrize("budget", [1, 41, 50, 100, 137, 500])
def test_20_3_4_a_budget_is_never_exceeded(friends: dict[str, Any], budget: int) -> None:
    answer = friends["world"].recall("hiking with Bob and Carol", token_budget=budget)
    assert answer["tokens_used"] <= budget
    assert answer["truncated"] is (len(answer["results"]) < answer["meta"]["candidates"])


def test_20_3_4_mmr_prefers_what_says_something_else(world: World) -> None:
    query = "breakfast"
    # Cosines with the query .9, .89 and .6; the second is nearly the first, the third is something else.
    best = world.note("Porridge with honey.")
    same = world.note("Porridge and honey.")
    other = world.note("Toast with jam.")
    first = world.vectors.at(query, 0.9)
    beside = world.vectors.at(query, 0.9, turn=1)
    second = 0.999 * first + 0.02 * (beside - 0.81 * first)
    world.put_vector(best, first)
    world.put_vector(same, second / (second @ second) ** 0.5)
    world.place(other, query, 0.6, turn=2)
    by_score = world.found(query, weights=VECTOR, lambda_mmr=1)
    assert set(by_score[:2]) == {best, same}
    # After the first: about .5 * 1 - .5 * 1 for its like, and .5 * .71 - .5 * .54 for the other.
    mixed = world.found(query, weights=VECTOR, lambda_mmr=0.5, max_results=2)
    assert mixed == [by_score[0], other]
    whole = world.recall(query, weights=VECTOR, lambda_mmr=0.5, token_budget=100)
    assert [one["id"] for one in whole["results"]] == mixed, "what is left out for want of room is its like"
    assert whole["truncated"] is True


def test_20_3_4_mmr_finds_what_says_something_else_behind_many_of_a_kind(world: World) -> None:
    query = "breakfast"
    alike = [world.note(f"Porridge with honey, {number}.") for number in range(14)]
    for number, one in enumerate(alike):
        world.place(one, query, 0.9 - number / 1000)
    other = world.note("Toast with jam.")
    world.place(other, query, 0.6, turn=2)
    ask: dict[str, Any]
    for ask in ({"max_results": 2}, {"token_budget": 100}):
        assert other in world.found(query, weights=VECTOR, lambda_mmr=0.3, **ask), ask


# Narrower


def test_a_relation_leaves_only_its_facts(world: World) -> None:
    drinks = world.fact("Alice", "drinks", "green tea")
    world.fact("Alice", "sells", "green tea")
    world.note("green tea")
    for name in ("relation", "predicate"):
        asks: dict[str, Any] = {name: "drinks"}
        assert world.found("green tea", **asks) == [drinks]
    made = predicate(world.admin, name="trinkt")
    alias = world.admin.post(f"/v1/predicates/{made['predicate_id']}/aliases", json={"alias": "schlürft"})
    assert alias.status_code in (200, 201), alias.text
    slurps = world.fact("Bob", "trinkt", "green tea")
    assert world.found("green tea", relation="schlürft") == [slurps]


def test_a_relation_is_found_behind_hundreds_of_better_facts(world: World) -> None:
    facts = [
        {"subject": f"person {number}", "predicate": "drinks", "object": {"value": "green tea, green tea"}}
        for number in range(260)
    ]
    answer = world.robin.post("/v1/facts/batch", json={"facts": facts})
    assert answer.status_code == 200, answer.text
    rare = world.fact("Zoe", "imports", "all kinds of things from far away, among them some tea for the shop")
    assert world.found("green tea", relation="imports") == [rare]
    assert world.found("green tea", relation="imports", weights=LEXICAL, lambda_mmr=1) == [rare]


def test_a_scope_leaves_only_what_has_it(world: World) -> None:
    mine = world.fact("Alice", "drinks", "green tea", scope="agent_private")
    ours = world.fact("Alice", "drinks", "green tea", scope="project_shared")
    all_ = world.note("green tea", scope="public")
    assert set(world.found("green tea")) == {mine, ours, all_}
    assert world.found("green tea", scope="local") == [mine]
    assert world.found("green tea", scope="team_shared") == [ours]
    assert world.found("green tea", scope="public") == [all_]
    assert world.found("green tea", scope="org_shared") == []


def test_a_project_is_searched_in_its_own_language(world: World) -> None:
    assert world.admin.patch("/v1/admin/projects/default", json={"language": "german"}).status_code == 200
    note = world.note("Die Häuser am Hafen wurden verkauft.")
    assert world.found("ein Haus verkaufen", weights=LEXICAL) == [note]


def test_graph_alone_starts_from_what_is_found_by_words(friends: dict[str, Any]) -> None:
    found = friends["world"].found("hiking", include=["facts"], weights=GRAPH, lambda_mmr=1)
    assert friends["hikes"] in found
    assert friends["jazz"] in found
