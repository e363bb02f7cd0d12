"""Recall as it runs: always the same, with what is there, counted beside the read path (RECALL 20.3.3, 20.3.4)."""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from app.cli.administration import with_database
from app.recall.access_counts import AccessCounts
from tests.conftest import TestDatabase
from tests.facts.shared import fact
from tests.recall.conftest import worlds
from tests.recall.shared import LEXICAL, VECTOR, Vectors, World, asked, edge
from tests.service import RunningService, free_port, start_service, stop

QUERY = "who drinks green tea?"


@pytest.fixture(scope="module")
def new_world(database: TestDatabase, service: RunningService, vectors: Vectors) -> Iterator[Callable[..., World]]:
    """Worlds in a service of this module alone."""
    with worlds(database, service, vectors) as build:
        yield build


@pytest.fixture(scope="module")
def twin(database: TestDatabase, service: RunningService) -> Iterator[RunningService]:
    """A second service on the same database."""
    with start_service(database.url("app")) as running:
        yield running


def through(running: RunningService, client: httpx.Client) -> httpx.Client:
    """The same caller, asking another process."""
    return httpx.Client(base_url=running.url, headers=client.headers, timeout=30)


@pytest.fixture
def tea(world: World) -> World:
    """Facts, edges and notes, with vectors."""
    made = [
        world.fact("Alice", "drinks", "green tea", confidence=0.9),
        world.fact("Alice", "knows", edge("Bob"), confidence=0.8),
        world.fact("Bob", "drinks", "black coffee"),
        world.note("Green tea, said Alice.", thread_id="talk", position=1),
        world.note("And cake?", thread_id="talk", position=2),
        world.note("Carol drinks nothing but water."),
    ]
    for turn, one in enumerate(made):
        world.place(one, QUERY, 0.7 - turn / 10, turn=turn)
    return world


ASKS: list[dict[str, Any]] = [
    {},
    {"lambda_mmr": 0.3},
    {"fusion": "rrf", "depth": 2},
    {"entity": "Alice"},
    {"include": ["notes"], "weights": LEXICAL},
    {"weights": VECTOR},
]


def test_the_same_request_gives_the_same_answer_also_through_another_process(tea: World, twin: RunningService) -> None:
    with through(twin, tea.robin) as other:
        while asked(other, query="Is anybody there?")["meta"]["degraded"]:
            time.sleep(0.1)
        for ask in ASKS:
            answers = tea.undisturbed(
                lambda: [tea.recall(QUERY, by=by, **ask)["results"] for by in (tea.robin, tea.robin, other)]  # noqa: B023
            )
            first = [(one["kind"], one["id"]) for one in answers[0]]
            assert first
            for answer in answers[1:]:
                assert [(one["kind"], one["id"]) for one in answer] == first, ask
                assert [one["score"] for one in answer] == pytest.approx([one["score"] for one in answers[0]], abs=1e-6)


def test_ties_go_by_id(world: World) -> None:
    notes = [world.note("Green tea.", thread_id=f"talk {number}") for number in range(6)]
    facts = [world.fact(f"person{number}", "drinks", "green tea") for number in range(6)]
    world.superuser.execute(
        "UPDATE graph_facts SET created_at = now() - interval '1 day' WHERE tenant_id = %s", (world.tenant_id,)
    )
    for include, ids in (("notes", notes), ("facts", facts)):
        answer = world.recall("green tea", include=[include], weights=LEXICAL, lambda_mmr=1)
        assert len({one["score"] for one in answer["results"]}) == 1
        assert [one["id"] for one in answer["results"]] == sorted(ids)
        three = world.found("green tea", include=[include], weights=LEXICAL, max_results=3)
        assert three == sorted(ids)[:3]


def test_20_3_3_accesses_are_counted_beside_the_read_path(tea: World, twin: RunningService) -> None:
    parent = fact(tea.robin, "Dan", "poured", "it")
    child = fact(tea.robin, "Eve", "infers", "rooibos", derived_from=[parent["fact_hash"]])
    counts = "SELECT access_count FROM graph_facts WHERE fact_id = %s"
    with through(twin, tea.robin) as client:
        for _ in range(3):
            answer = asked(client, query="rooibos", include=["facts"], weights=LEXICAL)
            assert len(answer["results"]) == 2
        asked(client, query="rooibos", include=["facts"], weights=LEXICAL, token_budget=1)
    # At the latest when the process ends.
    stop(twin.process)
    assert tea.one(counts, child["fact_id"]) == 3
    assert tea.one(counts, parent["fact_id"]) == 3, "what came along was returned too"
    assert tea.one("SELECT max(access_count) FROM graph_facts WHERE tenant_id = %s", tea.tenant_id) == 3
    assert tea.one("SELECT last_accessed_at IS NOT NULL FROM graph_facts WHERE fact_id = %s", child["fact_id"])
    # ln(1 + 0) and ln(1 + 3) of ln(1 + 3)
    unread = tea.fact("Fay", "infers", "rooibos")
    found = tea.scores("rooibos", include=["facts"], weights=LEXICAL)
    assert found[unread]["salience"] == pytest.approx(0.5, abs=1e-5)
    assert found[child["fact_id"]]["salience"] == pytest.approx(0.9, abs=1e-5)


def test_20_3_3_counts_are_added_up_and_kept_until_they_can_be_written(tea: World, database: TestDatabase) -> None:
    ids = [tea.fact("Gus", "likes", f"thing {number}") for number in range(2)]
    hidden = tea.fact("Hal", "likes", "things")
    tea.superuser.execute("UPDATE graph_facts SET suppression = 1 WHERE fact_id = %s", (hidden,))

    async def work(db: Any) -> None:
        counts = AccessCounts(db)
        counts.add(tea.tenant_id, "default", ids)
        counts.add(tea.tenant_id, "default", [ids[0], hidden])
        assert tea.one("SELECT sum(access_count) FROM graph_facts WHERE tenant_id = %s", tea.tenant_id) == 0
        await db.close()
        await counts.flush()
        await db.open()
        await counts.flush()
        await counts.flush()

    with_database(database.settings(), work)
    rows = tea.superuser.execute(
        "SELECT fact_id::text AS id, access_count AS count FROM graph_facts WHERE fact_id = ANY (%s)", ([*ids, hidden],)
    ).fetchall()
    assert {row["id"]: row["count"] for row in rows} == {ids[0]: 2, ids[1]: 1, hidden: 0}


def test_before_there_are_vectors_words_and_the_graph_do(world: World) -> None:
    known = world.fact("Alice", "drinks", "green tea")
    far = world.fact("Alice", "plays", "chess")
    note = world.note("Green tea, said Alice.")
    answer = world.recall("green tea")
    assert {one["id"] for one in answer["results"]} == {known, far, note}
    assert answer["meta"]["degraded"] is False, "nothing is out of order"
    scores = world.scores("green tea")
    assert {one["cosine"] for one in scores.values()} == {None}


def test_what_was_written_a_moment_ago_is_not_behind_weak_neighbours(world: World) -> None:
    for turn in range(20):
        world.place(world.note(f"Something else, number {turn}."), "osric repairs clocks", 0.3 - turn / 100, turn=turn)
    fresh = world.note("Osric repairs clocks in town.")
    answer = world.recall("osric repairs clocks", max_results=4)
    assert answer["results"][0]["id"] == fresh


def test_what_stands_far_inside_a_long_note_is_not_behind_weak_neighbours(world: World) -> None:
    query = "keeper of the lighthouse"
    for turn in range(20):
        world.place(world.note(f"Something else, number {turn}."), query, 0.38 - turn / 100, turn=turn)
    words = " ".join(f"detail{n} of matter{n}" for n in range(400))
    long = world.note(f"{words} The keeper of the lighthouse is Ottokar.")
    world.place(long, query, 0.02, turn=30)
    assert world.found(query, max_results=5, token_budget=20_000)[0] == long


def test_20_3_4_one_that_is_too_long_for_the_budget_is_named(world: World) -> None:
    long = world.note("word " * 2000 + "Falkenhorst.")
    short = world.note("Falkenhorst is an insurer.")
    answer = world.recall("Falkenhorst")
    assert [one["id"] for one in answer["results"]] == [short]
    assert [(one["kind"], one["id"]) for one in answer["too_long"]] == [("note", long)]
    needed = answer["too_long"][0]["tokens"]
    assert needed == 40 + -(-(len("word ") * 2000 + len("Falkenhorst.")) // 4)
    enough = world.recall("Falkenhorst", token_budget=needed + 100)
    assert {one["id"] for one in enough["results"]} == {long, short}
    assert "too_long" not in enough


def test_a_small_tenant_beside_a_large_one_gets_all_its_nearest(world: World) -> None:
    query = "something by the sea"
    facts = [
        {"subject": f"thing {number}", "predicate": "is", "object": {"value": f"value {number}"}}
        for number in range(30)
    ]
    made = world.robin.post("/v1/facts/batch", json={"facts": facts}).json()["results"]
    ids = [one["fact"]["fact_id"] for one in made]
    for number, one in enumerate(ids):
        world.place(one, query, 0.5 - number / 100, turn=number % 5)
    # Thousands of another tenant in the same part of the table, every one of them nearer.
    near = world.vectors.at(query, 0.9)
    text = "[" + ",".join(f"{number:.6g}" for number in near) + "]"
    place = "SELECT tableoid::regclass::text FROM embeddings WHERE tenant_id = %s LIMIT 1"
    mine = world.one(place, world.tenant_id)
    copy = (
        "INSERT INTO embeddings SELECT %s, project_id, owner_kind, gen_random_uuid(), view, model_id, agent_id, scope,"
        " garden_id, suppression, text_hash, embedded_at, "
        " l2_normalize(%s::vector + vector * array_fill((0.01 * s)::real, ARRAY[384])::vector) "
        "FROM (SELECT * FROM embeddings WHERE tenant_id = %s AND owner_id = %s) e, generate_series(1, %s) s"
    )
    for number in range(200):
        large = f"{world.tenant_id}-large-{number}"
        world.superuser.execute(copy.encode(), (large, text, world.tenant_id, ids[0], 1))
        if world.one(place, large) == mine:
            break
    else:
        raise AssertionError("no tenant in the same part of the table")
    world.superuser.execute(copy.encode(), (large, text, world.tenant_id, ids[0], 2000))
    world.superuser.execute("ANALYZE embeddings")
    assert world.found(query, weights=VECTOR, lambda_mmr=1, max_results=10) == ids[:10]
    assert len(world.found(query, weights=VECTOR, max_results=200, token_budget=50_000)) == 30


def test_without_a_model_nothing_is_out_of_order(tea: World, database: TestDatabase) -> None:
    tea.superuser.execute("UPDATE embedding_models SET active = false")
    try:
        with start_service(database.url("app")) as running, through(running, tea.robin) as client:
            answer = asked(client, query=QUERY, include=["facts"])
            assert answer["meta"]["channels"] == ["lexical", "graph"]
            assert (answer["meta"]["degraded"], answer["meta"]["embedding"]) == (False, None), "as the operator chose"
            assert len(answer["results"]) == 3
    finally:
        tea.superuser.execute("UPDATE embedding_models SET active = true WHERE model_id = 1")


def test_without_an_embedder_recall_goes_on_and_says_so(
    tea: World, database: TestDatabase, new_world: Callable[..., World]
) -> None:
    tea.superuser.execute("UPDATE embedding_models SET active = false")
    tea.superuser.execute(
        "INSERT INTO embedding_models (model_id, provider, model, version, dimensions, active, created_at) "
        "VALUES (9, 'ollama', 'nomic-embed-text', 1, 768, true, now())"
    )
    dead = f"http://127.0.0.1:{free_port()}"
    try:
        with start_service(database.url("app"), OLLAMA_URL=dead) as running, through(running, tea.robin) as client:
            took: list[float] = []
            for _ in range(7):
                started = time.monotonic()
                answer = asked(client, query=QUERY, debug=True, include=["facts"])
                assert answer["meta"]["channels"] == ["lexical", "graph"]
                assert (answer["meta"]["degraded"], answer["meta"]["embedding"]) == (True, None)
                assert len(answer["results"]) == 3
                took.append(time.monotonic() - started)
            # Judged by the quicker half, since this machine may pause.
            assert sorted(took)[3] < 3 / 7, "nobody waits for who does not answer"
            for one in answer["scores_debug"]:
                # The others share what the missing channel leaves.
                expected = (0.3 * one["lexical"] + 0.2 * one["graph"]) / 0.5
                assert math.isclose(one["raw_score"], expected, rel_tol=1e-9)
                assert one["cosine"] is None
            nothing = asked(client, query=QUERY, weights=VECTOR)
            assert (nothing["results"], nothing["meta"]["channels"], nothing["meta"]["degraded"]) == ([], [], True)
            unasked = asked(client, query=QUERY, weights=LEXICAL)
            assert unasked["meta"]["degraded"] is False, "what is not asked for is not missed"
    finally:
        tea.superuser.execute("DELETE FROM embedding_models WHERE model_id = 9")
        tea.superuser.execute("UPDATE embedding_models SET active = true WHERE model_id = 1")
