"""What one may not read is not there, and no score tells of it (RECALL 20.3.3, 20.4.4; design, sections 1 and 4)."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.cards.shared import built
from tests.erasure.shared import tombstone
from tests.facts.shared import error
from tests.recall.shared import LEXICAL, VECTOR, World, edge

QUERY = "Alice and her green tea"
CHANNELS: list[dict[str, Any]] = [
    {"weights": LEXICAL},
    {"weights": VECTOR},
    {"weights": {"graph": 1.0}, "depth": 2},
    {"weights": {"lexical": 0.3, "vector": 0.5, "graph": 0.2}, "depth": 2},
    {"fusion": "rrf"},
    {"entity": "Alice"},
    {"entity": "Alice", "weights": LEXICAL, "include_contradicted": True},
    {"relation": "drinks"},
    {"include": ["notes"], "weights": LEXICAL},
]

TOLD = ("lexical_raw", "cosine", "graph_raw", "raw_score")


def snapshot(world: World, client: httpx.Client) -> list[Any]:
    """All that can be told from the answers, but for the trace, and for age and accesses of what may be read."""
    seen: list[Any] = []
    for ask in CHANNELS:
        for more in ({}, {"as_of": world.now()}):
            sent = {"lambda_mmr": 1.0, "debug": True, "token_budget": 50_000, "max_results": 200, **ask, **more}
            answer = world.recall(QUERY, by=client, **sent)
            scores = sorted(
                (
                    one["id"],
                    *(round(one[name] or 0.0, 6) for name in ("lexical_raw", "cosine", "graph_raw", "raw_score")),
                )
                for one in answer["scores_debug"]
            )
            card = answer["memory_card"]
            seen.append((scores, answer["meta"]["candidates"], answer["tokens_used"], card and card["value"]))
    return seen


def fill(world: World, client: httpx.Client, **place: Any) -> list[str]:
    """Facts, edges, notes and vectors that would be the best of all, where they may be read."""
    made = [
        world.fact("Alice", "drinks", "green tea and green tea", by=client, **place),
        world.fact("Alice", "adores", edge("Green Tea"), by=client, **place),
        world.fact("Green Tea", "drinks", edge("Alice"), by=client, **place),
        world.fact("Bob", "pours", "green tea for Alice", by=client, **place),
    ]
    note = world.note("Alice, green tea, green tea, Alice.", by=client, **place)
    made.append(note)
    made.append(world.fact("Alice", "sips", "green tea", by=client, evidence=[note], **place))
    made += [
        world.note(text, by=client, thread_id="talk", position=number, **place)
        for number, text in ((11, "Alice: green tea!"), (13, "Green tea, Alice?"))
    ]
    for turn, one in enumerate(made):
        world.place(one, QUERY, 0.95 - turn / 100, turn=turn)
    return made


@pytest.fixture
def tea(new_world: Callable[..., World]) -> World:
    """What everybody in the project may read."""
    world = new_world("other")
    plain = [
        world.fact("Alice", "drinks", "green tea"),
        world.fact("Alice", "knows", edge("Bob"), confidence=0.8),
        world.fact("Bob", "drinks", "black coffee", confidence=0.9),
        world.note("Alice had green tea in the garden.", thread_id="talk", position=10),
        world.note("And a slice of cake.", thread_id="talk", position=12),
        world.note("Bob wrote to Carol about tea."),
    ]
    for turn, one in enumerate(plain):
        world.place(one, QUERY, 0.6 - turn / 10, turn=turn)
    return world


def garden(world: World, client: httpx.Client) -> str:
    answer = client.post("/v1/gardens", json={"slug": f"g{uuid4().hex[:8]}"})
    assert answer.status_code == 201, answer.text
    return answer.json()["garden"]["garden_id"]


@pytest.mark.parametrize("hidden", ["private", "garden", "project", "tenant", "tombstone", "everywhere"])
def test_20_3_3_what_is_hidden_neither_appears_nor_changes_a_score(
    tea: World, new_world: Callable[..., World], hidden: str
) -> None:
    before = snapshot(tea, tea.robin)
    assert all(scores for scores, *_ in before)
    made: list[str] = []
    if hidden in ("private", "everywhere"):
        made += fill(tea, tea.wren, scope="agent_private")
    if hidden in ("garden", "everywhere"):
        made += fill(tea, tea.wren, garden_id=garden(tea, tea.wren))
    if hidden in ("project", "everywhere"):
        made += fill(tea, tea.issue("other"), scope="org_shared")
    if hidden in ("tenant", "everywhere"):
        other = new_world()
        made += fill(other, other.robin, scope="public")
    if hidden in ("tombstone", "everywhere"):
        made.append(tea.fact("Mallory", "drinks", "green tea with Alice"))
        made.append(tea.fact("Mallory", "knows", edge("Alice")))
        made.append(tea.note("Mallory told Alice about green tea."))
        made.append(tea.fact("Mallory", "said", "green tea", evidence=[made[-1]]))
        for turn, one in enumerate(made[-4:]):
            tea.place(one, QUERY, 0.9, turn=turn)
        tombstone(tea.admin, "Mallory")
    assert snapshot(tea, tea.robin) == before
    for ask in CHANNELS:
        assert not set(tea.found(QUERY, **ask)) & set(made)
    if hidden == "private":
        assert set(tea.found(QUERY, by=tea.wren, max_results=200, token_budget=50_000)) >= set(made), "they may read it"
        assert not set(tea.found(QUERY, by=tea.admin, max_results=200)) & set(made), "but administrators may not"
    if hidden == "garden":
        assert set(tea.found(QUERY, by=tea.wren, max_results=200, token_budget=50_000)) >= set(made)
        assert set(tea.found(QUERY, by=tea.admin, max_results=200, token_budget=50_000)) >= set(made)


def test_statistics_tell_nothing_of_what_only_some_may_read(tea: World) -> None:
    def count_words() -> None:
        with tea.superuser.transaction():
            for name, value in (("tenant_id", tea.tenant_id), ("project_id", "default")):
                tea.superuser.execute("SELECT set_config(%s, %s, true)", (f"app.{name}", value))
            for kind in ("note", "fact"):
                tea.superuser.execute("SELECT refresh_lexicon(%s, 1)", (kind,))

    count_words()
    before = snapshot(tea, tea.robin)
    fill(tea, tea.wren, scope="agent_private")
    fill(tea, tea.wren, garden_id=garden(tea, tea.wren))
    assert snapshot(tea, tea.robin) == before
    count_words()
    assert snapshot(tea, tea.robin) == before
    terms = tea.one("SELECT count(*) FROM lexical_frequencies WHERE tenant_id = %s AND term = 'ador'", tea.tenant_id)
    assert terms == 0


def test_20_4_4_cards_of_gardens_and_agents_stay_where_they_are(tea: World) -> None:
    place = garden(tea, tea.wren)
    tea.fact("Zoe", "keeps", "a secret in the garden", by=tea.wren, garden_id=place)
    tea.fact("Zoe", "keeps", "a secret of her own", by=tea.wren, scope="agent_private")
    assert len(built(tea.wren, "Zoe")) == 2
    answer = tea.recall("secret", entity="Zoe")
    assert (answer["memory_card"], answer["results"]) == (None, [])
    plain = tea.fact("Zoe", "keeps", "a cat")
    built(tea.robin, "Zoe")
    answer = tea.recall("secret", entity="Zoe")
    assert [one["id"] for one in answer["results"]] == [plain]
    assert "secret" not in answer["memory_card"]["value"]["v"]
    assert "card_stale" not in answer, "nor is it out of date for what it may not tell"
    theirs = tea.recall("secret", by=tea.wren, entity="Zoe")
    assert len(theirs["results"]) == 3
    assert theirs["memory_card"] is not None


def test_a_tombstone_hides_what_was_found_before_and_revoking_brings_it_back(tea: World) -> None:
    before = snapshot(tea, tea.robin)
    made = tombstone(tea.admin, "Alice")
    for ask in CHANNELS:
        answer = tea.recall(QUERY, **ask)
        assert all("Alice" not in str(one) for one in answer["results"]), ask
        assert answer["memory_card"] is None
        assert "tombstone_notices" not in answer
    answer = tea.admin.post(f"/v1/tombstones/{made['tombstone_id']}/revoke", json={"reason": "a mistake"})
    assert answer.status_code == 200, answer.text
    # The worker makes the vectors anew; here they are put back by hand.
    tea.place_again()
    assert snapshot(tea, tea.robin) == before


def test_membership_of_a_garden_opens_and_closes_it(tea: World) -> None:
    place = garden(tea, tea.wren)
    made = fill(tea, tea.wren, garden_id=place)
    asks: dict[str, Any] = {"max_results": 200, "token_budget": 50_000}
    assert not set(tea.found(QUERY, **asks)) & set(made)
    answer = tea.wren.put(f"/v1/gardens/{place}/members/robin", json={"role": "reader"})
    assert answer.status_code in (200, 201), answer.text
    assert set(made) <= set(tea.found(QUERY, **asks))
    assert tea.wren.delete(f"/v1/gardens/{place}/members/robin").status_code == 204
    assert not set(tea.found(QUERY, **asks)) & set(made)


def test_traces_are_for_who_asked_and_for_administrators(tea: World, new_world: Callable[..., World]) -> None:
    trace = tea.recall(QUERY)["trace_id"]
    strangers = [tea.wren, tea.issue("other"), tea.issue("other", kind="admin", agent_id=None), new_world().admin]
    for path in (f"/v1/recall/traces/{trace}", f"/v1/recall/traces/{trace}/replay"):
        assert tea.robin.get(path).status_code == 200
        assert tea.admin.get(path).status_code == 200
        for stranger in strangers:
            assert error(stranger.get(path)) == (404, "trace_not_found")
    assert error(tea.robin.get(f"/v1/recall/traces/{uuid4()}")) == (404, "trace_not_found")


def test_a_replay_shows_nothing_that_its_reader_may_not_read(tea: World) -> None:
    secret = tea.fact("Alice", "hides", "green tea", by=tea.wren, scope="agent_private")
    trace = tea.recall("hides green tea", by=tea.wren)["trace_id"]
    own = {one["id"]: one for one in tea.wren.get(f"/v1/recall/traces/{trace}/replay").json()["results"]}
    assert own[secret]["exists"] is True
    seen = {one["id"]: one for one in tea.admin.get(f"/v1/recall/traces/{trace}/replay").json()["results"]}
    assert set(seen) == set(own)
    assert seen[secret]["exists"] is False
    assert "fact" not in seen[secret]
