"""What one project shares, keys with the scope read in the others: by id, in lists and in recall, and nothing more."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from app.access import AGENT_SCOPES
from tests.erasure.shared import revoke, tombstone
from tests.facts.shared import body, error, garden, ids, listed, read
from tests.recall.shared import LEXICAL, VECTOR, World, edge

SHARED = ("org_shared", "public")
READER: list[str] = [*AGENT_SCOPES, "graph:admin:cross-project"]
QUERY = "the harbour of Lisbon"


@dataclass
class Neighbours:
    """A world whose project `other` has two keys: one that reads what the project `default` shares, and one without."""

    world: World
    reader: httpx.Client
    plain: httpx.Client


@pytest.fixture(scope="module")
def near(new_world: Callable[..., World]) -> Neighbours:
    world = new_world("other")
    return Neighbours(
        world=world,
        reader=world.issue("other", agent_id="eve", scopes=READER),
        plain=world.issue("other", agent_id="eve"),
    )


@pytest.fixture
def alone(new_world: Callable[..., World]) -> Neighbours:
    """The same, in which nothing is written but by the test."""
    world = new_world("other")
    reader = world.issue("other", agent_id="eve", scopes=READER)
    return Neighbours(world=world, reader=reader, plain=world.issue("other", agent_id="eve"))


def notes(client: httpx.Client, **params: Any) -> dict[str, Any]:
    answer = client.get("/v1/notes", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def projects(rows: list[dict[str, Any]], key: str) -> dict[str, str | None]:
    return {row[key]: row.get("project_id") for row in rows}


def test_shared_notes_are_listed_and_read_with_their_project(alone: Neighbours) -> None:
    world = alone.world
    made = {scope: world.note(f"{scope} note", scope=scope) for scope in ("project_shared", "agent_private", *SHARED)}
    in_garden = world.note("of a garden", scope="org_shared", garden_id=garden(world.robin, "org_shared"))
    own = world.note("my own", by=alone.plain)
    before = notes(alone.plain, include_total="true")
    assert projects(before["notes"], "note_id") == {own: None}
    seen = {made["org_shared"]: "default", made["public"]: "default"}

    page = notes(alone.reader, include_total="true")
    assert projects(page["notes"], "note_id") == {own: None, **seen}
    assert page["total"]["count"] == 3
    assert list(projects(notes(alone.reader, scope="public")["notes"], "note_id")) == [made["public"]]
    first = notes(alone.reader, limit=2)
    rest = notes(alone.reader, limit=2, cursor=first["next_cursor"])
    assert [*first["notes"], *rest["notes"]] == page["notes"]

    for note_id in seen:
        answer = alone.reader.get(f"/v1/notes/{note_id}")
        assert (answer.status_code, answer.json()["project_id"]) == (200, "default")
        assert error(alone.plain.get(f"/v1/notes/{note_id}")) == (404, "note_not_found")
        assert "project_id" not in world.robin.get(f"/v1/notes/{note_id}").json()
    for note_id in (made["project_shared"], made["agent_private"], in_garden):
        assert error(alone.reader.get(f"/v1/notes/{note_id}")) == (404, "note_not_found")
    assert notes(alone.plain, include_total="true") == before


def test_what_others_share_is_read_only(near: Neighbours) -> None:
    world, reader = near.world, near.reader
    note = world.note("Nobody else changes this.", scope="org_shared")
    fact = world.fact("Nobody", "changes", "this", scope="org_shared")
    change = {"reason": "mine now", "content": "changed"}
    refused = [
        reader.patch(f"/v1/notes/{note}", json=change),
        reader.request("DELETE", f"/v1/notes/{note}", params={"reason": "mine now"}),
        reader.get(f"/v1/notes/{note}/history"),
        reader.patch(f"/v1/facts/{fact}", json={"valid_to": world.now()}),
        reader.post(f"/v1/facts/{fact}/retract", json={"reason": "no"}),
        reader.get(f"/v1/facts/{fact}/history"),
        reader.post("/v1/facts", json=body("I", "cite", "it", evidence=[note])),
    ]
    assert [answer.status_code for answer in refused] == [404] * len(refused), [answer.text for answer in refused]
    assert world.robin.get(f"/v1/notes/{note}").json()["version"] == 1
    assert read(world.robin, fact)["retracted_at"] is None


def test_shared_facts_bring_their_names(alone: Neighbours) -> None:
    world, reader = alone.world, alone.reader
    open_note = world.note("Ada said so.", scope="public")
    closed_note = world.note("Ada whispered.")
    shared = world.fact("Ada", "owns", edge("Analytical Engine"), scope="org_shared", evidence=[open_note, closed_note])
    world.fact("Ada", "hides", "a letter")
    world.fact("Ada", "dreams", "of flying", scope="agent_private")
    world.fact("Ada", "grows", "roses", scope="org_shared", garden_id=garden(world.robin, "org_shared"))
    own = world.fact("Ada", "owns", "a desk", by=alone.plain)
    mine = listed(alone.plain)
    assert ids(mine) == [own]

    assert projects(listed(reader, include_total="true"), "fact_id") == {own: None, shared: "default"}
    found = read(reader, shared)
    assert found == {**read(world.robin, shared), "evidence": [open_note], "project_id": "default"}
    assert (found["subject"]["canonical"], found["object"]["entity"]["canonical"]) == ("Ada", "Analytical Engine")
    assert ids(listed(reader, entity="ada")) == [shared, own] or ids(listed(reader, entity="ada")) == [own, shared]
    for params in (
        {"entity": found["subject"]["entity_id"]},
        {"object": "Analytical Engine"},
        {"entity": "Ada", "scope": "org_shared"},
        {"predicate": found["predicate"]["predicate_id"]},
        {"predicate": "OWNS", "min_confidence": 0.1, "scope": "org_shared", "include_inactive": "true"},
    ):
        assert ids(listed(reader, **params)) == [shared], params
        assert listed(alone.plain, **params) == []
    assert set(ids(listed(reader, predicate="owns", include_contradicted="false"))) == {own, shared}
    assert listed(alone.plain) == mine


def test_names_that_no_shared_row_brings_stay_hidden(near: Neighbours) -> None:
    world, reader = near.world, near.reader
    world.fact("Secret Sam", "knows", edge("Shared Sue"))
    shared = world.fact("Shared Sue", "knows", edge("Open Otto"), scope="public")
    assert listed(reader, entity="Secret Sam") == listed(reader, object="Secret Sam") == []
    assert ids(listed(reader, entity="Shared Sue")) == [shared]
    assert listed(reader, object="Shared Sue") == []
    for name in ("Secret Sam", "Shared Sue"):
        assert error(reader.get(f"/v1/entities/{name}"))[0] == 404
        assert reader.get("/v1/graph/neighbors", params={"entity": name}).json()["entity"] is None
    everything = reader.get("/v1/entities", params={"limit": 200}).text + reader.get("/v1/predicates").text
    assert "Sam" not in everything
    assert "Sue" not in everything


def test_contradicted_shared_facts_are_told_and_left_out(near: Neighbours) -> None:
    world, reader = near.world, near.reader
    weak = world.fact("The tower", "height", "90 m", scope="org_shared", confidence=0.5)
    strong = world.fact("The tower", "height", "99 m", scope="org_shared", confidence=0.9)
    assert [read(reader, fact)["contradicted"] for fact in (weak, strong)] == [True, True]
    assert set(ids(listed(reader, entity="The tower"))) == {weak, strong}
    assert ids(listed(reader, entity="The tower", include_contradicted="false")) == [strong]
    ask = {"entity": "The tower", "by": reader}
    assert set(world.found("tower", include_contradicted=True, **ask)) == {weak, strong}
    assert world.found("tower", include_contradicted=False, **ask) == [strong]


def test_reads_at_a_past_time_stay_in_the_project(near: Neighbours) -> None:
    world = near.world
    note, fact = world.note("Past and shared.", scope="public"), world.fact("Past", "is", "shared", scope="public")
    then = world.now()
    assert error(near.reader.get(f"/v1/notes/{note}", params={"as_of": then})) == (404, "note_not_found")
    assert error(near.reader.get(f"/v1/facts/{fact}", params={"as_of": then})) == (404, "fact_not_found")
    assert world.found("past and shared", by=near.reader, as_of=then) == []
    assert set(world.found("past and shared", by=near.reader)) >= {note, fact}


@pytest.mark.parametrize("weights", [LEXICAL, VECTOR], ids=["lexical", "vector"])
def test_recall_finds_what_others_share(alone: Neighbours, weights: dict[str, float]) -> None:
    world = alone.world
    own = world.note("Lisbon has a harbour.", by=alone.plain)
    world.place(own, QUERY, 0.5)
    options = {"weights": weights, "lambda_mmr": 1.0, "rendered": True}
    before = world.recall(QUERY, by=alone.plain, **options)
    assert [one["id"] for one in before["results"]] == [own]
    made: dict[str, str] = {}
    for scope in ("project_shared", "agent_private", *SHARED):
        made[f"note {scope}"] = world.note(f"The harbour of Lisbon, {scope}.", scope=scope)
        made[f"fact {scope}"] = world.fact("Lisbon", "harbour", f"old, {scope}", scope=scope)
    for turn, one in enumerate(made.values(), 1):
        world.place(one, QUERY, 0.9 - turn / 100, turn=turn)
    seen = {made[f"{kind} {scope}"]: "default" for kind in ("note", "fact") for scope in SHARED}

    found = world.recall(QUERY, by=alone.reader, **options)
    assert projects(found["results"], "id") == {own: None, **seen}
    assert found["rendered"].count("Lisbon") >= 5
    only_notes = world.recall(QUERY, by=alone.reader, include=["notes"], scope="public", **options)
    assert projects(only_notes["results"], "id") == {made["note public"]: "default"}
    again = world.recall(QUERY, by=alone.plain, **options)
    for answer in (before, again):
        answer.pop("trace_id")
    assert again == before


def test_recall_about_an_entity_or_predicate_that_only_another_project_knows(near: Neighbours) -> None:
    world, reader = near.world, near.reader
    shared = world.fact("Marie Curie", "discovered", "polonium", scope="org_shared")
    world.fact("Marie Curie", "feared", "nothing")
    assert world.found("polonium", by=reader, entity="marie curie") == [shared]
    assert world.found("polonium", by=reader, relation="discovered") == [shared]
    assert world.found("polonium", by=reader, entity="marie curie", relation="feared") == []
    assert world.found("polonium", by=near.plain, entity="marie curie") == []
    own = world.fact("Marie Curie", "visited", "us", by=reader)
    assert set(world.found("polonium", by=reader, entity="Marie Curie")) == {own, shared}


def test_recall_ranks_a_shared_note_like_an_own_one_and_counts_no_access(alone: Neighbours) -> None:
    world = alone.world
    theirs = world.note("Grey herons nest in the reeds.", scope="org_shared", thread_id="t", position=1)
    world.note("Grey herons nest in the reeds, I think, or do they?", thread_id="t", position=2)
    own = world.note("Grey herons nest in the reeds.", by=alone.reader)
    scores = world.scores("where do herons nest", by=alone.reader, weights=LEXICAL)
    assert scores.keys() == {theirs, own}
    assert scores[theirs]["lexical_raw"] == pytest.approx(scores[own]["lexical_raw"])


def test_forgetting_hides_shared_rows_at_once(near: Neighbours) -> None:
    world, reader = near.world, near.reader
    note = world.note("Yolanda Brix keeps bees.", scope="public")
    fact = world.fact("Yolanda Brix", "keeps", "bees", scope="public", evidence=[note])
    about = world.fact("The bees", "belong to", edge("Yolanda Brix"), scope="public")
    for made in (note, fact, about):
        world.place(made, "bees", 0.9)

    def seen() -> set[str]:
        found = {one["note_id"] for one in notes(reader, limit=200)["notes"]} | set(ids(listed(reader)))
        by_id = {made: reader.get(f"/v1/facts/{made}") for made in (fact, about)}
        found |= {made for made, answer in by_id.items() if answer.is_success and not answer.json()["retracted_at"]}
        found |= set(world.found("bees", by=reader)) | set(world.found("bees", by=reader, entity="Yolanda Brix"))
        return found & {note, fact, about}

    assert seen() == {note, fact, about}
    for more in ({}, {"legal_hold": True}):
        made = tombstone(world.admin, "Yolanda Brix", **more)
        assert seen() == set()
        revoke(world.admin, made)
        assert seen() == {note, fact, about}
    world.robin.request("DELETE", f"/v1/notes/{note}", params={"reason": "done"}).raise_for_status()
    assert seen() == {about}
    tombstone(world.admin, "Yolanda Brix", erase=True)
    assert seen() == set()


def test_other_tenants_see_nothing(near: Neighbours, new_world: Callable[..., World]) -> None:
    note = near.world.note("For my organisation.", scope="public")
    fact = near.world.fact("Organisation", "shares", "this", scope="public")
    stranger = new_world("other").issue("other", scopes=READER)
    assert notes(stranger)["notes"] == listed(stranger) == []
    assert near.world.found("organisation", by=stranger) == []
    assert stranger.get(f"/v1/notes/{note}").status_code == stranger.get(f"/v1/facts/{fact}").status_code == 404


def test_an_administrators_key_has_the_reach_by_its_scope(near: Neighbours) -> None:
    world = near.world
    note = world.note("Administrators read this.", scope="org_shared")
    admin = world.issue("other", kind="admin", agent_id="root", project_id="other")
    without = world.issue("other", kind="admin", agent_id="root", project_id="other", scopes=["admin", "notes:read"])
    assert admin.get(f"/v1/notes/{note}").json()["project_id"] == "default"
    assert without.get(f"/v1/notes/{note}").status_code == 404
