"""Traces of recall, the worker beside it, and what erasure leaves of both."""

import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from app.cli.administration import with_database
from app.db.scope import Scope
from app.recall.tasks import clear_traces
from tests.conftest import TestDatabase
from tests.erasure.shared import tombstone, until_erased
from tests.facts.shared import error, garden, predicate
from tests.recall.conftest import worlds
from tests.recall.shared import VECTOR, Vectors, World, edge
from tests.service import RunningService

pytestmark = pytest.mark.usefixtures("worker")


@pytest.fixture(scope="module")
def new_world(database: TestDatabase, service: RunningService, vectors: Vectors) -> Iterator[Callable[..., World]]:
    """Worlds in a service of this module alone."""
    with worlds(database, service, vectors) as build:
        yield build


def trace_of(world: World, answer: dict[str, Any]) -> dict[str, Any]:
    found = world.robin.get(f"/v1/recall/traces/{answer['trace_id']}")
    assert found.status_code == 200, found.text
    return found.json()


def replayed(world: World, answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found = world.robin.get(f"/v1/recall/traces/{answer['trace_id']}/replay")
    assert found.status_code == 200, found.text
    assert found.json()["trace"] == trace_of(world, answer)
    return {one["id"]: one for one in found.json()["results"]}


def until(done: Callable[[], bool], *, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"not after {seconds} s"
        time.sleep(0.05)


def embedded(world: World, *owners: str) -> bool:
    return world.one("SELECT count(*) FROM embeddings WHERE owner_id = ANY (%s)", list(owners)) == len(owners)


def test_20_2_2_what_was_written_is_found_by_its_meaning_once_it_is_embedded(world: World) -> None:
    tea = world.note("She has a cup of green tea every morning.")
    bus = world.note("The bus to the airport leaves at nine.")
    known = world.fact("Alice", "prefers", "oolong for breakfast")
    until(lambda: embedded(world, tea, bus, known))
    found = world.found("a hot beverage", weights=VECTOR, lambda_mmr=1)
    assert set(found[:2]) == {tea, known}
    assert found[2] == bus
    lengths = world.superuser.execute(
        "SELECT vector_norm(vector) AS norm FROM embeddings WHERE tenant_id = %s", (world.tenant_id,)
    ).fetchall()
    assert [row["norm"] for row in lengths] == pytest.approx([1.0] * 3, abs=1e-5), "20.2.2: of unit length"


def test_a_trace_tells_what_was_asked_and_returned(world: World) -> None:
    fact = world.fact("Alice", "drinks", "oolong")
    note = world.note("Oolong, she said.")
    answer = world.recall("  oolong ", token_budget=500, include=["notes", "facts"], depth=2)
    trace = trace_of(world, answer)
    assert set(trace) == {
        *("trace_id", "agent_id", "key_id", "request", "context", "results", "valid_at", "as_of", "created_at"),
    }
    assert (trace["trace_id"], trace["agent_id"]) == (answer["trace_id"], "robin")
    asked = trace["request"]
    assert (asked["query"], asked["token_budget"], asked["depth"]) == ("oolong", 500, 2)
    assert asked["include"] == ["facts", "notes"]
    assert trace["context"]["channels"] == answer["meta"]["channels"]
    assert trace["context"]["kind"] == "agent"
    assert "facts:read" in trace["context"]["scopes"]
    assert {one["id"] for one in trace["results"]} == {fact, note}
    assert [(one["kind"], one["id"], one["score"]) for one in trace["results"]] == [
        (one["kind"], one["id"], pytest.approx(one["score"])) for one in answer["results"]
    ]
    row = world.one("SELECT results::text FROM recall_traces WHERE trace_id = %s", answer["trace_id"])
    assert "she said" not in row, "by ids and scores alone"
    past = world.recall("oolong", as_of=trace["as_of"])
    assert trace_of(world, past)["as_of"] == trace["as_of"]


def test_a_replay_shows_what_was_returned_as_it_was_then(world: World) -> None:
    predicate(world.admin, name="works at", cardinality="single", status="active")
    old = world.fact("Alice", "works at", "the oolong mill", confidence=0.8)
    wrong = world.fact("Alice", "owns", "an oolong garden", confidence=0.6)
    note = world.note("Oolong is served at nine.")
    gone = world.note("Oolong is served at four.")
    answer = world.recall("oolong", weights={"lexical": 1.0})
    assert {one["id"] for one in answer["results"]} == {old, wrong, note, gone}
    before = replayed(world, answer)
    new = world.fact("Alice", "works at", "the coffee mill")
    world.robin.post(f"/v1/facts/{wrong}/retract", json={"reason": "wrong"})
    world.robin.patch(f"/v1/notes/{note}", json={"content": "Coffee is served at ten.", "reason": "new plan"})
    assert world.robin.delete(f"/v1/notes/{gone}", params={"reason": "wrong"}).status_code == 204
    after = replayed(world, answer)
    assert after == before
    assert all(one["exists"] for one in after.values())
    assert (after[old]["fact"]["valid_to"], after[old]["fact"]["confidence"]) == (None, 0.8)
    assert (after[wrong]["fact"]["retracted_at"], after[wrong]["fact"]["confidence"]) == (None, 0.6)
    assert after[note]["note"]["content"] == "Oolong is served at nine."
    assert new not in after


def test_what_was_forgotten_is_there_by_its_id_alone(world: World) -> None:
    known = world.fact("Mallory", "drinks", "oolong")
    kept = world.fact("Alice", "drinks", "oolong")
    answer = world.recall("oolong", weights={"lexical": 1.0})
    tombstone(world.admin, "Mallory")
    after = replayed(world, answer)
    assert (after[known]["exists"], "fact" in after[known]) == (False, False)
    assert after[kept]["exists"] is True


def test_a_replay_shows_what_was_seen_whatever_is_thought_of_it_since(world: World) -> None:
    known = world.fact("Alice", "drinks", "oolong")
    origin = world.fact("Alice", "tasted", "oolong twice")
    source = world.robin.get(f"/v1/facts/{origin}").json()["fact_hash"]
    derived = world.fact("Alice", "likes", "oolong", derived_from=[source])
    answer = world.recall("oolong", weights={"lexical": 1.0})
    seen = {one["id"]: one for one in answer["results"]}
    # As if it had happened while the answer was made.
    world.superuser.execute(
        "UPDATE graph_facts SET source_trust = 0.01, closed_at = valid_from, "
        "valid_to = valid_from + interval '1 microsecond' WHERE tenant_id = %s AND fact_id = %s",
        (world.tenant_id, known),
    )
    after = replayed(world, answer)
    for name in ("source_trust", "valid_to", "closed_at", "confidence"):
        assert after[known]["fact"][name] == seen[known][name], name
    assert after[origin]["provenance_of"] == derived
    assert (after[known]["hops"], "provenance_of" in after[known]) == (seen[known]["hops"], False)
    context = trace_of(world, answer)["context"]
    assert (context["tokens_used"], context["truncated"]) == (answer["tokens_used"], answer["truncated"])


def traced(client: Any, answer: dict[str, Any]) -> list[dict[str, dict[str, Any]]]:
    """What a trace tells of its results, alone and in its replay."""
    found = client.get(f"/v1/recall/traces/{answer['trace_id']}")
    again = client.get(f"/v1/recall/traces/{answer['trace_id']}/replay")
    assert (found.status_code, again.status_code) == (200, 200), found.text + again.text
    return [{one["id"]: one for one in told["results"]} for told in (found.json(), again.json()["trace"])]


def test_what_was_seen_is_told_to_who_may_read_the_fact_to_this_day(world: World) -> None:
    bed = garden(world.robin, wren="writer")
    shared = world.fact("Alice", "drinks", "oolong")
    forgotten = world.fact("Mallory", "drinks", "oolong")
    private = world.fact("Alice", "hides", "oolong", by=world.wren, scope="agent_private")
    within = world.fact("Alice", "grows", "oolong", garden_id=bed)
    answer = world.recall("oolong", by=world.wren, weights={"lexical": 1.0})
    everything = {shared, forgotten, private, within}
    for told in traced(world.wren, answer):
        assert {one for one in told if "seen" in told[one]} == everything
    for told in traced(world.admin, answer):
        assert {one for one in told if "seen" in told[one]} == everything - {private}, "hers alone"
    tombstone(world.admin, "Mallory")
    assert world.robin.delete(f"/v1/gardens/{bed}/members/wren").status_code == 204
    for told in traced(world.wren, answer):
        assert {one for one in told if "seen" in told[one]} == {shared, private}
        assert set(told[forgotten]) == set(told[within]) == {"kind", "id", "score", "hops"}
    noter = world.issue(agent_id="wren", scopes=["notes:read", "history:as_of"])
    for told in traced(noter, answer):
        assert set(told) == everything
        assert not any("seen" in one for one in told.values())


def test_administrators_see_what_was_seen_under_a_hold_where_the_reading_is_on_record(world: World) -> None:
    held = world.fact("Mallory", "drinks", "oolong")
    answer = world.recall("oolong", weights={"lexical": 1.0})
    tombstone(world.admin, "Mallory", legal_hold=True)
    now, then = traced(world.admin, answer)
    assert ("seen" in now[held], "seen" in then[held]) == (False, True)
    replay = world.admin.get(f"/v1/recall/traces/{answer['trace_id']}/replay").json()
    assert [one["entity_uri"] for one in replay["tombstone_notices"]] == ["Mallory"]


def card_then(world: World, trace: str, *, by: Any = None) -> dict[str, Any]:
    found = (by or world.robin).get(f"/v1/recall/traces/{trace}/replay")
    assert found.status_code == 200, found.text
    return found.json()["memory_card"]


def with_card(world: World, entity: str, words: str) -> dict[str, Any]:
    """The first answer whose card says so."""
    answers: list[dict[str, Any]] = []

    def told() -> bool:
        answers.append(world.recall("tea", entity=entity, force_refresh=True))
        card = answers[-1]["memory_card"]
        return card is not None and words in card["value"]["v"]

    until(told)
    return answers[-1]


def test_a_replay_shows_the_card_as_it_was_then(world: World) -> None:
    predicate(world.admin, name="works at", cardinality="single", status="active")
    world.fact("Alice", "works at", "the oolong mill", confidence=0.8)
    wrong = world.fact("Alice", "owns", "an oolong garden", confidence=0.6)
    held = world.fact("Alice", "drinks", "oolong", confidence=0.5)
    world.fact("Alice", "has secret", "a teapot", scope="agent_private")
    answer = with_card(world, "Alice", "oolong mill")
    seen = answer["memory_card"]
    world.fact("Alice", "works at", "the coffee mill")
    world.fact("Alice", "drinks", "oolong", confidence=0.9)
    world.robin.post(f"/v1/facts/{wrong}/retract", json={"reason": "wrong"})
    assert "garden" not in with_card(world, "Alice", "coffee mill")["memory_card"]["value"]["v"]
    for by in (world.robin, world.admin):
        then = card_then(world, answer["trace_id"], by=by)
        assert then.pop("exists") is True
        assert then == {name: seen[name] for name in then}
        assert {"value", "entity", "built_at"} < set(then)
    shown = trace_of(world, answer)["context"]["memory_card"]
    assert (shown["card_id"], shown["entity_id"]) == (seen["card_id"], seen["entity"]["entity_id"])
    assert not any("oolong" in str(value) for value in shown.values()), "a trace holds no content"
    assert held in {one["id"] for one in answer["results"]}


def test_a_replay_shows_private_cards_in_a_garden_too(world: World) -> None:
    bed = garden(world.robin, scope="agent_private")
    world.fact("Alice", "hides", "oolong", scope="agent_private", garden_id=bed)
    answer = with_card(world, "Alice", "oolong")
    seen = answer["memory_card"]
    assert (seen["scope"], seen["garden_id"]) == ("agent_private", bed)
    then = card_then(world, answer["trace_id"])
    assert then.pop("exists") is True
    assert then == {name: seen[name] for name in then}
    assert "value" in then
    assert card_then(world, answer["trace_id"], by=world.admin)["exists"] is False


def test_a_replayed_card_tells_nothing_that_was_forgotten(world: World) -> None:
    world.fact("Mallory", "drinks", "oolong")
    world.fact("Alice", "drinks", "sencha")
    world.fact("Alice", "knows", {"entity": "Mallory"})
    theirs, hers = with_card(world, "Mallory", "oolong"), with_card(world, "Alice", "Mallory")
    tombstone(world.admin, "Mallory")
    gone = card_then(world, theirs["trace_id"])
    assert (gone["exists"], gone["card_id"]) == (False, theirs["memory_card"]["card_id"])
    assert not {"value", "entity"} & set(gone)
    left = card_then(world, hers["trace_id"])
    assert "sencha" in left["value"]["v"]
    assert "Mallory" not in left["value"]["v"]
    assert card_then(world, world.recall("oolong")["trace_id"]) is None


def test_looking_back_needs_its_scope(world: World) -> None:
    world.fact("Alice", "drinks", "oolong")
    plain = world.issue(scopes=["facts:read", "notes:read"])
    trace = world.recall("oolong", by=plain)["trace_id"]
    assert plain.get(f"/v1/recall/traces/{trace}").status_code == 200
    assert error(plain.get(f"/v1/recall/traces/{trace}/replay")) == (403, "missing_scope")


def traces(world: World) -> set[str]:
    """All that are left."""
    rows = world.superuser.execute(
        "SELECT trace_id::text AS id FROM recall_traces WHERE tenant_id = %s", (world.tenant_id,)
    ).fetchall()
    return {row["id"] for row in rows}


def test_erasure_takes_traces_vectors_and_counted_words_along(world: World) -> None:
    note = world.note("Mallory drinks quaxolotl tea.")
    facts = [
        world.fact("Mallory", "drinks", "quaxolotl tea", evidence=[note]),
        world.fact("Alice", "knows", edge("Mallory")),
    ]
    kept = world.fact("Alice", "drinks", "oolong tea")
    until(lambda: embedded(world, note, *facts, kept))

    def counted() -> bool:
        """The worker counts words too, but only frequent ones."""
        with world.superuser.transaction():
            for name, value in (("tenant_id", world.tenant_id), ("project_id", "default")):
                world.superuser.execute("SELECT set_config(%s, %s, true)", (f"app.{name}", value))
            world.superuser.execute("SELECT refresh_lexicon('note', 1), refresh_lexicon('fact', 1)")
        return world.one("SELECT count(*) FROM lexical_frequencies WHERE term = 'quaxolotl'") == 2

    until(counted)
    by_result = world.recall("tea")["trace_id"]
    by_words = world.recall("What about Mallory?", include=["notes"], weights={"lexical": 1.0}, max_results=1)[
        "trace_id"
    ]
    other = world.recall("oolong", include=["facts"], weights={"lexical": 1.0})["trace_id"]
    until_erased(world.admin, tombstone(world.admin, "Mallory", erase=True))
    ids = traces(world)
    assert other in ids
    assert not {by_result, by_words} & ids
    assert world.one("SELECT count(*) FROM embeddings WHERE owner_id = ANY (%s)", [note, *facts]) == 0
    assert world.one("SELECT count(*) FROM lexical_frequencies WHERE term = 'quaxolotl'") == 0
    assert error(world.robin.get(f"/v1/recall/traces/{by_result}")) == (404, "trace_not_found")
    assert world.found("quaxolotl tea", include=["facts"]) == [kept]


def test_erasure_takes_traces_that_asked_for_it_without_finding_anything(world: World) -> None:
    found = world.robin.post("/v1/entities", json={"canonical": "user:Mallory Moe", "aliases": ["Mal Content"]}).json()
    entity_id = found["entity"]["entity_id"]
    world.robin.post("/v1/entities", json={"canonical": "Bo"})
    asked = [
        *({"entity": name} for name in ("user:mallory-moe", "USER:Mallory Moe", "mal  content", entity_id.upper())),
        {"entity_uri": "user:Mallory\tMoe"},
        {"query": "What did user:Mallory Moe do?"},
    ]
    gone = {world.recall(**{"query": "kayaks", **question})["trace_id"] for question in asked}
    short, kept = (world.recall("kayaks", entity=name)["trace_id"] for name in ("BO", "Bob"))
    # Notes that only name it may be kept; what was asked for goes all the same.
    made = tombstone(world.admin, entity_id, erase=True, notes="linked")
    assert until_erased(world.admin, made)["receipt"]["names_left"] == []
    assert not gone & traces(world)
    until_erased(world.admin, tombstone(world.admin, "Bo", erase=True))
    assert {short, kept} & traces(world) == {kept}


def test_erasure_takes_a_trace_that_showed_a_card(world: World) -> None:
    world.fact("Mallory", "drinks", "oolong")
    shown = with_card(world, "Mallory", "oolong")["trace_id"]
    # The card alone, as where nothing was found that fits the question.
    world.superuser.execute(
        "UPDATE recall_traces SET request = request - 'entity', results = '[]' WHERE trace_id = %s", (shown,)
    )
    until_erased(world.admin, tombstone(world.admin, "Mallory", erase=True))
    assert shown not in traces(world)


def test_ids_are_searched_in_json_too(world: World) -> None:
    trace = world.recall("kayaks")["trace_id"]
    wanted = uuid4()
    world.superuser.execute(
        "UPDATE recall_traces SET context = context || jsonb_build_object('memory_card', %s::text) WHERE trace_id = %s",
        (str(wanted).upper(), trace),
    )
    world.superuser.execute(
        "UPDATE projects SET settings = jsonb_build_object('theirs', %s::text) WHERE tenant_id = %s",
        (str(wanted), world.tenant_id),
    )
    found = world.superuser.execute(
        "SELECT kind, table_name, column_name, hits FROM find_residue(%s, %s, NULL, NULL, NULL) WHERE kind <> 'looked'",
        (world.tenant_id, [wanted]),
    ).fetchall()
    assert [tuple(row.values()) for row in found] == [
        ("name", "projects", "settings", 1),
        ("id", "recall_traces", "context", 1),
    ]


class Clearing:
    """A job, as far as clearing needs one."""

    def __init__(self, db: Any, tenant_id: str) -> None:
        self.db = db
        self.scope = Scope(tenant_id=tenant_id)


def test_traces_are_kept_for_30_days_or_as_long_as_the_project_says(
    new_world: Callable[..., World], database: TestDatabase
) -> None:
    world, other = new_world(), new_world()
    ages = {}
    for days in (5, 29, 31, 400):
        ages[days] = world.recall("oolong")["trace_id"]
        age(world, ages[days], days)
    theirs = other.recall("oolong")["trace_id"]
    age(other, theirs, 400)

    def clear() -> None:
        async def work(db: Any) -> None:
            await clear_traces(Clearing(db, world.tenant_id))  # type: ignore[arg-type]

        with_database(database.settings(), work)

    clear()
    assert left(world) == {ages[5], ages[29]}
    assert left(other) == {theirs}, "each tenant's maintenance clears its own"
    assert world.admin.patch("/v1/admin/projects/default", json={"trace_days": 7}).status_code == 200
    clear()
    assert left(world) == {ages[5]}


def age(world: World, trace: str, days: int) -> None:
    world.superuser.execute(
        "UPDATE recall_traces SET created_at = created_at - make_interval(days => %s) WHERE trace_id = %s",
        (days, trace),
    )


def left(world: World) -> set[str]:
    rows = world.superuser.execute(
        "SELECT trace_id::text AS id FROM recall_traces WHERE tenant_id = %s AND request ->> 'query' = 'oolong'",
        (world.tenant_id,),
    ).fetchall()
    return {row["id"] for row in rows}
