"""Notes over HTTP: store, deduplicate, read within one's reach, change, forget, recover."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests.conftest import Tenancy, TestDatabase
from tests.service import RunningService

Clients = Callable[..., httpx.Client]


@pytest.fixture(scope="module", autouse=True)
def tenants(tenancy: Tenancy) -> None:
    tenancy.tenant("acme", "default", "other")
    tenancy.tenant("rival")


@pytest.fixture(scope="module")
def robin(tenancy: Tenancy, tenants: None) -> str:
    return tenancy.key("acme", agent_id="robin")


@pytest.fixture(scope="module")
def wren(tenancy: Tenancy, tenants: None) -> str:
    return tenancy.key("acme", agent_id="wren")


def words() -> str:
    return f"something new {uuid4().hex}"


def store(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/notes", json={"content": words(), **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()["note"]


def test_a_note_is_stored_and_read_back(robin: str, as_key: Clients) -> None:
    client = as_key(robin)
    body = {
        "content": "  Alice   likes\n tea. ", "type": "preference", "tags": ["drink", "drink"], "author": "Alice",
        "occurred_at": "2026-01-02T03:04:05+01:00", "thread_id": "chat-1", "position": 7, "pinned": True,
    }  # fmt: skip
    answer = client.post("/v1/notes", json=body)
    assert answer.status_code == 201
    assert (answer.json()["deduplicated"], answer.json()["job_id"]) == (False, None)
    note = answer.json()["note"]
    assert note["content"] == "Alice likes tea."
    assert note["occurred_at"] == "2026-01-02T02:04:05Z"
    assert (note["tags"], note["agent_id"], note["version"], note["position"]) == (["drink"], "robin", 1, 7)
    assert client.get(f"/v1/notes/{note['note_id']}").json() == {**note, "mentions": []}


def test_the_same_live_content_again_is_no_failure(robin: str, wren: str, as_key: Clients) -> None:
    text = words()
    first = store(as_key(robin), content=text)
    again = as_key(wren).post("/v1/notes", json={"content": f"  {text.upper()}!! "})
    assert (again.status_code, again.json()["deduplicated"]) == (200, True)
    assert again.json()["note"]["note_id"] == first["note_id"]


@pytest.mark.parametrize(
    "other",
    [{"scope": "org_shared"}, {"scope": "agent_private"}, {"thread_id": "t"}, {"thread_id": "t", "position": 1}],
    ids=str,
)
def test_another_scope_or_place_makes_another_note(robin: str, as_key: Clients, other: dict[str, Any]) -> None:
    client, text = as_key(robin), words()
    assert store(client, content=text)["note_id"] != store(client, content=text, **other)["note_id"]
    assert client.post("/v1/notes", json={"content": text, **other}).json()["deduplicated"] is True


def test_private_notes_of_two_agents_are_two(robin: str, wren: str, as_key: Clients) -> None:
    text = words()
    mine = store(as_key(robin), content=text, scope="local")
    theirs = store(as_key(wren), content=text, scope="local")
    assert mine["scope"] == "agent_private"
    assert as_key(wren).get(f"/v1/notes/{mine['note_id']}").status_code == 404
    assert as_key(robin).get(f"/v1/notes/{theirs['note_id']}").status_code == 404


def test_of_many_writers_at_once_one_makes_it(robin: str, service: RunningService) -> None:
    text, start = words(), threading.Barrier(12)

    def send(_: int) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {robin}"}
        with httpx.Client(base_url=service.url, headers=headers, timeout=60, verify=False) as client:
            start.wait()
            answer = client.post("/v1/notes", json={"content": text})
            return answer.status_code, answer.json()["note"]["note_id"]

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(send, range(12)))
    assert sorted(status for status, _ in answers) == [200] * 11 + [201]
    assert len({note_id for _, note_id in answers}) == 1


def test_other_tenants_and_projects_see_nothing(tenancy: Tenancy, robin: str, as_key: Clients) -> None:
    note = store(as_key(robin), scope="public")
    strangers = [
        as_key(tenancy.key("rival")),
        as_key(tenancy.key("acme", project_id="other")),
        as_key(tenancy.key("rival", kind="admin"), "default"),
    ]
    for client in strangers:
        path = f"/v1/notes/{note['note_id']}"
        assert client.get(path).status_code == 404
        assert client.get(f"{path}/history").status_code == 404
        assert client.patch(path, json={"pinned": True, "reason": "r"}).status_code == 404
        assert client.delete(path, params={"reason": "r"}).status_code == 404
        assert client.get("/v1/notes").json()["notes"] == []


def test_admin_keys_see_gardens_but_no_private_notes(tenancy: Tenancy, robin: str, as_key: Clients) -> None:
    admin = as_key(tenancy.key("acme", kind="admin"), "default")
    private = store(as_key(robin), scope="agent_private")
    garden = as_key(robin).post("/v1/gardens", json={"slug": f"g{uuid4().hex[:8]}"}).json()["garden"]
    grown = store(as_key(robin), garden_id=garden["garden_id"])
    assert admin.get(f"/v1/notes/{grown['note_id']}").status_code == 200
    assert admin.get(f"/v1/notes/{private['note_id']}").status_code == 404


def test_notes_of_a_garden_are_for_its_members(robin: str, wren: str, as_key: Clients) -> None:
    owner, stranger = as_key(robin), as_key(wren)
    garden = owner.post("/v1/gardens", json={"slug": f"g{uuid4().hex[:8]}"}).json()["garden"]["garden_id"]
    note = store(owner, garden_id=garden)
    assert stranger.get(f"/v1/notes/{note['note_id']}").status_code == 404
    assert note["note_id"] not in [item["note_id"] for item in stranger.get("/v1/notes").json()["notes"]]
    named = stranger.get("/v1/notes", params={"garden": garden})
    assert (named.status_code, named.json()["error"]["code"]) == (403, "garden_forbidden")
    refused = stranger.post("/v1/notes", json={"content": words(), "garden_id": garden})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "garden_forbidden")
    owner.put(f"/v1/gardens/{garden}/members/wren", json={"role": "reader"})
    assert stranger.get(f"/v1/notes/{note['note_id']}").status_code == 200
    assert len(stranger.get("/v1/notes", params={"garden": garden}).json()["notes"]) == 1
    assert stranger.post("/v1/notes", json={"content": words(), "garden_id": garden}).status_code == 403
    change = {"reason": "r", "pinned": True}
    assert stranger.patch(f"/v1/notes/{note['note_id']}", json=change).status_code == 403
    owner.put(f"/v1/gardens/{garden}/members/wren", json={"role": "writer"})
    assert stranger.patch(f"/v1/notes/{note['note_id']}", json=change).status_code == 200
    wrong = stranger.post("/v1/notes", json={"content": words(), "garden_id": garden, "scope": "public"})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (422, "garden_scope_mismatch")
    unknown = stranger.post("/v1/notes", json={"content": words(), "garden_id": str(uuid4())})
    assert unknown.status_code == 404


def test_the_list_filters_and_pages(tenancy: Tenancy, as_key: Clients) -> None:
    tenancy.tenant("lister")
    client = as_key(tenancy.key("lister", agent_id="ann"))
    other = as_key(tenancy.key("lister", agent_id="ben"))
    made = [
        store(client, type="plan", tags=["a"], occurred_at="2020-01-01T00:00:00Z"),
        store(client, type="plan", tags=["a", "b"], thread_id="t1", position=0),
        store(other, type="fact", scope="company", occurred_at="2021-06-01T00:00:00Z"),
        store(client, type="fact", scope="local"),
    ]
    ids = [note["note_id"] for note in made]

    def listed(who: httpx.Client = client, **params: Any) -> list[str]:
        return [note["note_id"] for note in who.get("/v1/notes", params=params).json()["notes"]]

    assert listed() == ids[::-1]
    assert listed(other) == ids[2::-1]
    assert listed(type="plan") == [ids[1], ids[0]]
    assert listed(tag="b") == [ids[1]]
    assert listed(agent="ben") == [ids[2]]
    assert listed(scope="org_shared") == listed(scope="company") == [ids[2]]
    assert listed(thread_id="t1") == [ids[1]]
    assert listed(since="2020-01-01T00:00:00Z", until="2021-06-01T00:00:00Z") == [ids[0]]
    assert listed(since="2021-06-01T02:00:00+02:00", until="2022-01-01T00:00:00Z") == [ids[2]]
    assert listed(tag="never") == []
    first = client.get("/v1/notes", params={"limit": 3}).json()
    second = client.get("/v1/notes", params={"limit": 3, "cursor": first["next_cursor"]}).json()
    assert [note["note_id"] for note in first["notes"] + second["notes"]] == ids[::-1]
    assert second["next_cursor"] is None


def test_a_change_needs_a_reason_and_leaves_its_line(robin: str, as_key: Clients) -> None:
    client = as_key(robin)
    note = store(client, content=f"draft {uuid4().hex}")
    path = f"/v1/notes/{note['note_id']}"
    assert client.patch(path, json={"content": "x"}).json()["error"]["message"].startswith("reason")
    text = words()
    changed = client.patch(path, json={"content": text, "author": "Bob", "reason": "was wrong", "if_version": 1})
    assert (changed.status_code, changed.json()["note"]["version"], changed.json()["note"]["content"]) == (200, 2, text)
    stale = client.patch(path, json={"pinned": True, "reason": "r", "if_version": 1})
    assert (stale.status_code, stale.json()["error"]["code"]) == (409, "version_conflict")
    assert client.patch(path, json={"author": None, "reason": "anonymous"}).json()["note"]["author"] is None
    nothing = client.patch(path, json={"content": f" {text} ", "reason": "no change"})
    assert nothing.json()["note"]["version"] == 3
    events = client.get(f"{path}/history").json()["events"]
    assert [(event["event"], event["version"], event["reason"]) for event in events] == [
        ("created", 1, None), ("updated", 2, "was wrong"), ("updated", 3, "anonymous"),
    ]  # fmt: skip
    assert (events[1]["old_content"], events[1]["new_content"]) == (note["content"], text)


def test_a_change_into_another_notes_words_is_a_conflict(robin: str, as_key: Clients) -> None:
    client = as_key(robin)
    first, second = store(client), store(client)
    body = {"content": first["content"], "reason": "r"}
    refused = client.patch(f"/v1/notes/{second['note_id']}", json=body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "note_duplicate")
    assert client.get(f"/v1/notes/{second['note_id']}").json()["content"] == second["content"]


def test_forgotten_recovered_and_too_late(database: TestDatabase, robin: str, as_key: Clients) -> None:
    client, text = as_key(robin), words()
    note = store(client, content=text)
    path = f"/v1/notes/{note['note_id']}"
    assert client.delete(path).json()["error"]["code"] == "reason_required"
    assert client.delete(path, params={"reason": "old", "if_version": 9}).status_code == 409
    assert client.delete(path, params={"reason": "old"}).status_code == 204
    assert client.get(path).status_code == 404
    assert client.delete(path, params={"reason": "old"}).status_code == 404
    assert [event["event"] for event in client.get(f"{path}/history").json()["events"]] == ["created", "deleted"]
    twin = store(client, content=text)
    blocked = client.post(f"{path}/recover", json={"reason": "back"})
    assert (blocked.status_code, blocked.json()["error"]["code"]) == (409, "note_duplicate")
    client.delete(f"/v1/notes/{twin['note_id']}", params={"reason": "make room"})
    back = client.post(f"{path}/recover", json={"reason": "back"})
    assert (back.status_code, back.json()["note"]["version"]) == (200, 3)
    assert client.post(f"{path}/recover", json={"reason": "again"}).json()["error"]["code"] == "not_deleted"
    client.delete(path, params={"reason": "for good"})
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        connection.execute(
            "UPDATE memory_notes SET deleted_at = now() - interval '31 days' WHERE note_id = %s", (note["note_id"],)
        )
    late = client.post(f"{path}/recover", json={"reason": "late"})
    assert (late.status_code, late.json()["error"]["code"]) == (409, "recovery_expired")


def test_a_batch_is_all_or_nothing(database: TestDatabase, robin: str, as_key: Clients) -> None:
    client, text = as_key(robin), words()
    notes = [{"content": text}, {"content": words()}, {"content": text.upper()}]
    done = client.post("/v1/notes/batch", json={"notes": notes})
    assert done.status_code == 200
    results = done.json()["results"]
    assert [result["outcome"] for result in results] == ["created", "created", "deduplicated"]
    assert results[2]["note"]["note_id"] == results[0]["note"]["note_id"]
    broken = [{"content": words()}, {"content": "   "}, {"content": 7}]
    refused = client.post("/v1/notes/batch", json={"notes": broken})
    assert refused.status_code == 400
    assert refused.json()["error"]["details"]["index"] == 1
    assert "content" in refused.json()["error"]["message"]
    with psycopg.connect(database.superuser) as connection:
        found = connection.execute("SELECT 1 FROM memory_notes WHERE content = %s", (broken[0]["content"],)).fetchone()
    assert found is None


def test_a_batch_that_is_not_atomic_answers_for_each(robin: str, as_key: Clients) -> None:
    notes = [{"content": words()}, {"content": ""}, {"content": words(), "garden_id": str(uuid4())}, {"nope": 1}]
    done = as_key(robin).post("/v1/notes/batch", json={"notes": notes, "atomic": False})
    assert done.status_code == 200
    results = done.json()["results"]
    assert results[0]["outcome"] == "created"
    assert [result.get("error", {}).get("code") for result in results[1:]] == [
        "invalid_request", "garden_not_found", "invalid_request",
    ]  # fmt: skip
    assert [result["index"] for result in results] == [0, 1, 2, 3]


def test_a_thousand_fit_and_one_more_does_not(robin: str, as_key: Clients) -> None:
    client = as_key(robin)
    notes = [{"content": words()} for _ in range(1000)]
    done = client.post("/v1/notes/batch", json={"notes": notes})
    assert {result["outcome"] for result in done.json()["results"]} == {"created"}
    again = client.post("/v1/notes/batch", json={"notes": notes})
    assert {result["outcome"] for result in again.json()["results"]} == {"deduplicated"}
    many = client.post("/v1/notes/batch", json={"notes": [{"content": "x"}] * 1001})
    assert (many.status_code, many.json()["error"]["code"]) == (400, "batch_too_large")


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 400, "content"),
        ({"content": " \n "}, 400, "content"),
        ({"content": "x" * 65_537}, 413, "content"),
        ({"content": "é" * 32_769}, 413, "content"),
        ({"content": "x", "type": "gossip"}, 400, "type"),
        ({"content": "x", "occurred_at": "2026-01-01T00:00:00"}, 400, "occurred_at"),
        ({"content": "x", "occurred_at": "yesterday"}, 400, "occurred_at"),
        ({"content": "x", "position": 1}, 400, "position"),
        ({"content": "x", "thread_id": "t", "position": -1}, 400, "position"),
        ({"content": "x", "thread_id": ""}, 400, "thread_id"),
        ({"content": "x", "tags": ["t"] * 51}, 400, "tags"),
        ({"content": "x", "tags": [""]}, 400, "tags"),
        ({"content": "x", "scope": "everybody"}, 400, "scope"),
        ({"content": "x", "garden_id": "rose"}, 400, "garden_id"),
        ({"content": "x", "mood": "gay"}, 400, "mood"),
        ({"content": "nul \0 inside"}, 400, "content"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_input_is_named_and_nothing_is_written(
    database: TestDatabase, robin: str, as_key: Clients, body: dict[str, Any], status: int, field: str
) -> None:
    def count() -> Any:
        with psycopg.connect(database.superuser) as connection:
            return connection.execute("SELECT count(*) FROM memory_notes").fetchone()

    before = count()
    answer = as_key(robin).post("/v1/notes", json=body)
    assert answer.status_code == status
    assert field in answer.json()["error"]["message"]
    assert count() == before


@pytest.mark.parametrize("params", [{"since": "2026-01-01"}, {"until": "soon"}, {"garden": "rose"}, {"type": "gossip"}])
def test_bad_filters_are_named(robin: str, as_key: Clients, params: dict[str, str]) -> None:
    answer = as_key(robin).get("/v1/notes", params=params)
    assert answer.status_code == 400
    assert next(iter(params)) in answer.json()["error"]["message"]


def test_scopes_of_the_key_are_asked_for(tenancy: Tenancy, as_key: Clients) -> None:
    reader = as_key(tenancy.key("acme", scopes=["notes:read"]))
    writer = as_key(tenancy.key("acme", scopes=["notes:write"]))
    assert reader.post("/v1/notes", json={"content": "x"}).status_code == 403
    assert writer.get("/v1/notes").status_code == 403
    assert reader.get("/v1/notes").status_code == 200
    assert writer.post("/v1/notes", json={"content": words()}).status_code == 201


def test_a_repeated_request_makes_one_note(robin: str, as_key: Clients) -> None:
    client, headers, body = as_key(robin), {"Idempotency-Key": uuid4().hex}, {"content": words()}
    answers = [client.post("/v1/notes", json=body, headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].content == answers[1].content
