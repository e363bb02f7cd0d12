"""Administrators who look back read what a legal hold hides, on record and unless the deployment denies it; agents
never learn of it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.conftest import TestDatabase
from tests.erasure.shared import tombstone
from tests.erasure.test_holds import now
from tests.facts.shared import Superuser, entity, error, fact, new, note
from tests.service import RunningService, start_service

ALLOWED, DENIED = "Held Hanna", "Denied Dora"
WORDS = {"lexical": 1.0}


@dataclass(frozen=True)
class Held:
    """What is known about an entity under legal hold, and a time before that."""

    name: str
    hold: str
    then: str
    note: str
    cited: str
    thread: str
    word: str
    trace: str
    root: str
    about: str
    edge: str


def made(client: httpx.Client, path: str, **fields: Any) -> str:
    answer = client.post(path, json=fields)
    assert answer.status_code == 201, answer.text
    return next(value for value in answer.json().values() if isinstance(value, dict))["canonical_id"]


def hold(robin: httpx.Client, admin: httpx.Client, database: TestDatabase, name: str) -> Held:
    thread, word = new("thread"), f"w{new('')[-12:]}"
    entity(robin, name)
    told = note(robin, content=f"{name} likes {word}", thread_id=thread, position=1)
    cited = note(robin, content=f"She likes {word} very much", thread_id=thread, position=2)
    fact(robin, name, new("likes"), "tea", evidence=[cited])
    about = made(robin, "/v1/graph/objects", type="Decision", title=f"about {name}", properties={})
    root = made(robin, "/v1/graph/objects", type="Decision", title=new("other"), properties={})
    edge = made(robin, "/v1/graph/relationships", type="decides", src_id=root, dst_id=about)
    trace = robin.post("/v1/recall", json={"query": word, "weights": WORDS}).json()["trace_id"]
    then = now(database)
    changed = robin.patch(f"/v1/notes/{told}", json={"content": f"{name} likes nothing", "reason": "she said so"})
    assert changed.status_code == 200, changed.text
    made_hold = tombstone(admin, name, legal_hold=True)
    return Held(name, made_hold["tombstone_id"], then, told, cited, thread, word, trace, root, about, edge)


@pytest.fixture(scope="module")
def guarded(database: TestDatabase) -> Iterator[RunningService]:
    """A service that denies administrators the past of one of the two."""
    with start_service(database.url("app"), LEGAL_HOLD_DENIED=DENIED) as running:
        yield running


@pytest.fixture(scope="module")
def holds(service: RunningService, keys: dict[str, str], database: TestDatabase) -> dict[str, Held]:
    def client(name: str) -> httpx.Client:
        return at(service, {"Authorization": f"Bearer {keys[name]}", "X-Project-Id": "default"})

    with client("robin") as robin, client("admin") as admin:
        return {name: hold(robin, admin, database, name) for name in (ALLOWED, DENIED)}


@pytest.fixture
def held(holds: dict[str, Held]) -> Held:
    return holds[ALLOWED]


@pytest.fixture
def denied(holds: dict[str, Held]) -> Held:
    return holds[DENIED]


def at(service: RunningService, headers: Any) -> httpx.Client:
    return httpx.Client(base_url=service.url, headers=headers, timeout=30)


def ask(by: httpx.Client, way: str, held: Held, **then: str) -> httpx.Response:
    """Ask for what is held in one of the ways that `SHOWN` lists."""
    recalled = {"query": held.word, "weights": WORDS, "include": ["notes"], **then}
    match way:
        case "a note":
            return by.get(f"/v1/notes/{held.note}", params=then)
        case "a list of notes":
            return by.get("/v1/notes", params={"thread_id": held.thread, **then})
        case "recall":
            return by.post("/v1/recall", json=recalled)
        case "recall of notes too long":
            return by.post("/v1/recall", json={**recalled, "token_budget": 1})
        case "recall about an entity":
            return by.post("/v1/recall", json={**recalled, "entity": held.name})
        case "expand":
            return by.post("/v1/graph/expand", json={"roots": [held.root], **then})
        case "expand from it":
            return by.post("/v1/graph/expand", json={"roots": [held.about], "max_depth": 1, **then})
        case "traverse":
            return by.post("/v1/graph/traverse", json={"root_ids": [held.root], **then})
        case "the second page of a walk":
            sent = {"root_ids": [held.root], "limit": 1, "page_direction": "backward", **then}
            return by.post("/v1/graph/traverse", json=sent)
        case "the root of an empty walk":
            return by.post("/v1/graph/traverse", json={"root_ids": [held.about], "labels": ["none"], **then})
        case _:
            raise AssertionError(way)


# What each way shows, as fields of Held.
NOTES, WALK = {"note_ids": ["note", "cited"]}, {"object_ids": ["about"], "relationship_ids": ["edge"]}
SHOWN: dict[str, dict[str, list[str]]] = {
    "a note": {"note_ids": ["note"]},
    "a list of notes": NOTES,
    "recall": NOTES,
    "recall of notes too long": NOTES,
    # With the note beside it in its thread.
    "recall about an entity": NOTES,
    "expand": WALK,
    "expand from it": WALK,
    "traverse": WALK,
    "the second page of a walk": WALK,
    "the root of an empty walk": {"object_ids": ["about"]},
}
ways = pytest.mark.parametrize("way", SHOWN)


def ids_of(way: str, held: Held) -> dict[str, list[str]]:
    return {kind: sorted(getattr(held, name) for name in names) for kind, names in SHOWN[way].items()}


def shown_in(answer: httpx.Response, way: str, held: Held) -> set[str]:
    """Those of the held ids that an answer contains."""
    return {found for ids in ids_of(way, held).values() for found in ids if found in answer.text}


def recorded(superuser: Superuser, held: Held) -> list[dict[str, Any]]:
    rows = superuser.execute(
        "SELECT details FROM audit_log WHERE event_type = 'fact_read' AND details -> 'tombstone_ids' ? %s "
        "ORDER BY created_at, event_id",
        (held.hold,),
    ).fetchall()
    return [row["details"] for row in rows]


@ways
def test_administrators_who_look_back_read_what_is_held_on_record(
    way: str, held: Held, admin: httpx.Client, superuser: Superuser
) -> None:
    before = len(recorded(superuser, held))
    answer = ask(admin, way, held, as_of=held.then)
    assert answer.status_code == 200, answer.text
    expected = ids_of(way, held)
    assert shown_in(answer, way, held) == {found for ids in expected.values() for found in ids}
    (event,) = recorded(superuser, held)[before:]
    assert {kind: sorted(ids) for kind, ids in event.items()} == {"tombstone_ids": [held.hold], **expected}


@ways
def test_nobody_else_learns_of_what_is_held(
    way: str, held: Held, admin: httpx.Client, robin: httpx.Client, superuser: Superuser
) -> None:
    """Neither agents, at any time, nor administrators who do not look back; and that is no reading under a hold."""
    before = len(recorded(superuser, held))
    for by, then in ((robin, {}), (robin, {"as_of": held.then}), (admin, {})):
        answer = ask(by, way, held, **then)
        assert answer.status_code in (200, 404), answer.text
        assert shown_in(answer, way, held) == set()
        assert "tombstone" not in answer.text
    assert len(recorded(superuser, held)) == before


@ways
def test_where_a_deployment_denies_it_administrators_are_refused_and_agents_are_not(
    way: str, held: Held, denied: Held, guarded: RunningService, admin: httpx.Client, robin: httpx.Client
) -> None:
    with at(guarded, admin.headers) as strict, at(guarded, robin.headers) as agent:
        refused = ask(strict, way, denied, as_of=denied.then)
        assert error(refused) == (403, "as_of_legal_hold_forbidden")
        for by, then in ((agent, {}), (agent, {"as_of": denied.then}), (strict, {})):
            assert ask(by, way, denied, **then).status_code in (200, 404)
        assert ask(strict, way, held, as_of=held.then).status_code == 200, "another hold is not denied"


def test_notes_under_a_hold_are_shown_as_they_were(held: Held, admin: httpx.Client) -> None:
    then = ask(admin, "a note", held, as_of=held.then).json()
    assert (then["content"], then["version"]) == (f"{held.name} likes {held.word}", 1)
    (found,) = [
        result
        for result in ask(admin, "recall", held, as_of=held.then).json()["results"]
        if result["note_id"] == held.note
    ]
    assert found["content"] == then["content"]


def test_recall_names_the_holds_on_its_notes(held: Held, admin: httpx.Client) -> None:
    answer = ask(admin, "recall", held, as_of=held.then).json()
    assert [notice["tombstone_id"] for notice in answer["tombstone_notices"]] == [held.hold]


def test_a_replayed_trace_shows_held_notes_to_administrators_alone(
    held: Held, denied: Held, admin: httpx.Client, robin: httpx.Client, guarded: RunningService
) -> None:
    def replay(by: httpx.Client, of: Held) -> httpx.Response:
        return by.get(f"/v1/recall/traces/{of.trace}/replay")

    shown = {result["id"]: result["exists"] for result in replay(admin, held).json()["results"]}
    assert shown == {held.note: True, held.cited: True}
    assert [item["tombstone_id"] for item in replay(admin, held).json()["tombstone_notices"]] == [held.hold]
    hidden = replay(robin, held).json()
    assert [result["exists"] for result in hidden["results"]] == [False, False]
    assert "tombstone_notices" not in hidden
    with at(guarded, admin.headers) as strict, at(guarded, robin.headers) as agent:
        assert error(replay(strict, denied)) == (403, "as_of_legal_hold_forbidden")
        assert replay(agent, denied).status_code == 200


def test_a_note_is_held_by_the_holds_of_its_scope_alone(
    robin: httpx.Client, admin: httpx.Client, database: TestDatabase, superuser: Superuser
) -> None:
    whole, partly = new("Whole"), new("Partly")
    told = note(robin, content=f"{whole} told it")
    entity(robin, whole)
    fact(robin, partly, new("p"), "x", evidence=[told])
    tombstone(admin, partly, legal_hold=True, scope="org_shared")
    made_hold = tombstone(admin, whole, legal_hold=True)
    assert admin.get(f"/v1/notes/{told}", params={"as_of": now(database)}).status_code == 200
    row = superuser.execute(
        "SELECT details FROM audit_log WHERE event_type = 'fact_read' AND details -> 'note_ids' ? %s", (told,)
    ).fetchone()
    assert row == {"details": {"tombstone_ids": [made_hold["tombstone_id"]], "note_ids": [told]}}


def test_an_object_of_every_project_is_checked_in_each_of_them(
    keys: dict[str, str],
    as_key: Callable[..., httpx.Client],
    robin: httpx.Client,
    admin: httpx.Client,
    guarded: RunningService,
    superuser: Superuser,
    database: TestDatabase,
) -> None:
    """A project does not see the holds of another, so that what is denied there cannot be told from what is not."""
    name = new("Shared")
    about = made(admin, "/v1/graph/objects", type="Decision", title=new("shared"), properties={}, project_id=None)
    path = f"/v1/entities/{entity(robin, name)['entity_id']}/object"
    assert admin.put(path, json={"object_id": about}).status_code == 200
    tombstone(admin, name, legal_hold=True)
    then = {"as_of": now(database)}
    other = as_key(keys["admin"], "other")
    assert other.get(f"/v1/graph/objects/{about}").status_code == 404
    assert other.get(f"/v1/graph/objects/{about}", params=then).status_code == 200
    row = superuser.execute(
        "SELECT details FROM audit_log WHERE event_type = 'fact_read' AND details -> 'object_ids' ? %s", (about,)
    ).fetchone()
    assert row == {"details": {"tombstone_ids": [], "object_ids": [about]}}
    with at(guarded, other.headers) as strict:
        refused = strict.get(f"/v1/graph/objects/{about}", params=then)
    assert error(refused) == (403, "as_of_legal_hold_forbidden")


def test_a_chunk_does_not_name_its_document_under_a_hold(
    robin: httpx.Client, admin: httpx.Client, database: TestDatabase
) -> None:
    name, word = new("Titled"), f"w{new('')[-12:]}"
    entity(robin, name)
    document = robin.post("/v1/documents", json={"title": f"File of {name}", "content": word}).json()["document"]
    note(robin, type="document_chunk", content=f"says {word}", thread_id=f"document:{document['document_id']}")
    then = now(database)
    tombstone(admin, name, legal_hold=True)
    asked = {"query": word, "weights": WORDS, "include": ["notes"], "rendered": True, "as_of": then}
    answer = admin.post("/v1/recall", json=asked).json()
    assert word in answer["rendered"]
    assert name not in answer["rendered"]


def test_an_object_of_a_merged_entity_is_read_under_the_hold_on_what_it_became(
    robin: httpx.Client, admin: httpx.Client, database: TestDatabase, superuser: Superuser
) -> None:
    before, after = entity(robin)["entity_id"], entity(robin)
    about, other = (made(robin, "/v1/graph/objects", type="Decision", title=new("bound")) for _ in range(2))
    for bound, item in ((before, about), (after["entity_id"], other)):
        assert robin.put(f"/v1/entities/{bound}/object", json={"object_id": item}).status_code == 200
    assert robin.post(f"/v1/entities/{before}/merge", json={"into": after["entity_id"]}).status_code == 200
    made_hold = tombstone(admin, after["canonical"], legal_hold=True)
    assert admin.get(f"/v1/graph/objects/{about}", params={"as_of": now(database)}).status_code == 200
    row = superuser.execute(
        "SELECT details FROM audit_log WHERE event_type = 'fact_read' AND details -> 'object_ids' ? %s", (about,)
    ).fetchone()
    assert row == {"details": {"tombstone_ids": [made_hold["tombstone_id"]], "object_ids": [about]}}
