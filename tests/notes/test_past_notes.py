"""Notes as they were: text, fields, version and existence at a past time, alone and in lists."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.conftest import Tenancy
from tests.facts.shared import error

Clients = Callable[..., httpx.Client]


@pytest.fixture(scope="module", autouse=True)
def tenants(tenancy: Tenancy) -> None:
    tenancy.tenant("acme", "default", "floor")
    tenancy.tenant("rival")


@pytest.fixture
def robin(tenancy: Tenancy, tenants: None, as_key: Clients) -> httpx.Client:
    return as_key(tenancy.key("acme", agent_id="robin"))


def store(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/notes", json={"content": f"something new {uuid4().hex}", **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()["note"]


def change(client: httpx.Client, note: dict[str, Any], **fields: Any) -> dict[str, Any]:
    answer = client.patch(f"/v1/notes/{note['note_id']}", json={"reason": "because", **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()["note"]


def at(client: httpx.Client, note: dict[str, Any], moment: str) -> httpx.Response:
    return client.get(f"/v1/notes/{note['note_id']}", params={"as_of": moment})


def before(moment: str) -> str:
    return (datetime.fromisoformat(moment) - timedelta(microseconds=1)).isoformat()


def listed(client: httpx.Client, **params: Any) -> list[dict[str, Any]]:
    answer = client.get("/v1/notes", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()["notes"]


def test_every_version_of_a_note_is_read_at_its_time(robin: httpx.Client) -> None:
    first = store(robin, author="Alice", tags=["a", "b"], occurred_at="2026-01-02T03:04:05Z", thread_id=uuid4().hex)
    second = change(robin, first, content=f"another text {uuid4().hex}", tags=[], author=None)
    third = change(robin, first, type="decision", pinned=True, occurred_at="2025-06-01T00:00:00Z", tags=["c"])
    assert error(at(robin, first, before(first["created_at"]))) == (404, "note_not_found")
    for version in (first, second, third):
        assert at(robin, first, version["updated_at"]).json() == {**version, "mentions": []}
    assert at(robin, first, before(second["updated_at"])).json() == {**first, "mentions": []}
    assert at(robin, first, before(third["updated_at"])).json() == {**second, "mentions": []}
    thread = {"thread_id": first["thread_id"]}
    for version in (first, second, third):
        assert listed(robin, **thread, as_of=version["updated_at"]) == [version]
    assert listed(robin, **thread, as_of=before(first["created_at"])) == []


def test_filters_compare_what_a_note_was_then(robin: httpx.Client) -> None:
    place = {"thread_id": uuid4().hex}
    first = store(robin, tags=["old"], type="plan", occurred_at="2026-01-02T00:00:00Z", **place)
    second = change(robin, first, tags=["new"], type="decision", occurred_at="2026-03-02T00:00:00Z")
    then, later = {**place, "as_of": first["updated_at"]}, {**place, "as_of": second["updated_at"]}
    for old, new in (
        ({"tag": "old"}, {"tag": "new"}),
        ({"type": "plan"}, {"type": "decision"}),
        ({"until": "2026-02-01T00:00:00Z"}, {"since": "2026-02-01T00:00:00Z"}),
    ):
        assert listed(robin, **then, **old) == [first]
        assert listed(robin, **then, **new) == []
        assert listed(robin, **later, **new) == [second]
        assert listed(robin, **later, **old) == []
    assert listed(robin, **then, agent="robin", scope="team") == [first]
    assert listed(robin, **then, agent="wren") == []


def test_a_note_is_there_between_its_deletions(robin: httpx.Client) -> None:
    note = store(robin)
    path = f"/v1/notes/{note['note_id']}"

    def moment(event: str) -> str:
        events = robin.get(f"{path}/history").json()["events"]
        return [found["created_at"] for found in events if found["event"] == event][-1]

    assert robin.delete(path, params={"reason": "first"}).status_code == 204
    deleted = moment("deleted")
    assert robin.post(f"{path}/recover", json={"reason": "back"}).status_code == 200
    recovered = moment("recovered")
    assert robin.delete(path, params={"reason": "second"}).status_code == 204
    assert robin.get(path).status_code == 404
    assert at(robin, note, note["updated_at"]).json() == {**note, "mentions": []}
    assert error(at(robin, note, deleted)) == (404, "note_not_found")
    assert error(at(robin, note, before(recovered))) == (404, "note_not_found")
    again = at(robin, note, recovered).json()
    assert (again["content"], again["version"], again["updated_at"]) == (note["content"], 3, recovered)
    assert error(at(robin, note, moment("deleted"))) == (404, "note_not_found")


def test_pages_at_a_past_time_stay_as_they_are(robin: httpx.Client) -> None:
    place = {"thread_id": uuid4().hex}
    notes = [store(robin, **place) for _ in range(7)]
    then = {**place, "as_of": notes[-1]["updated_at"], "limit": 3}
    first = robin.get("/v1/notes", params=then).json()
    for note in notes[:3]:
        change(robin, note, content=f"changed {uuid4().hex}")
    robin.delete(f"/v1/notes/{notes[3]['note_id']}", params={"reason": "gone"})
    store(robin, **place)
    second = robin.get("/v1/notes", params={**then, "cursor": first["next_cursor"]}).json()
    third = robin.get("/v1/notes", params={**then, "cursor": second["next_cursor"]}).json()
    assert [*first["notes"], *second["notes"], *third["notes"]] == notes[::-1]
    assert third["next_cursor"] is None
    # The cursor belongs to this time.
    other = robin.get("/v1/notes", params={**place, "limit": 3, "cursor": first["next_cursor"]})
    assert error(other) == (400, "cursor_invalid")


def test_a_past_time_needs_its_scope_and_shows_nothing_more(
    tenancy: Tenancy, robin: httpx.Client, as_key: Clients
) -> None:
    private = store(robin, scope="agent_private")
    then = change(robin, private, content=f"changed {uuid4().hex}")["updated_at"]
    plain = as_key(tenancy.key("acme", scopes=["notes:read"]))
    for path in ("/v1/notes", f"/v1/notes/{private['note_id']}"):
        assert error(plain.get(path, params={"as_of": then})) == (403, "missing_scope")
        assert error(robin.get(path, params={"as_of": "2999-01-01T00:00:00Z"})) == (400, "as_of_future")
        assert error(robin.get(path, params={"as_of": "yesterday"})) == (400, "as_of_invalid_timestamp")
    others = (
        as_key(tenancy.key("acme", agent_id="wren")),
        as_key(tenancy.key("acme", agent_id="robin", project_id="floor")),
        as_key(tenancy.key("acme", kind="admin"), "default"),
        as_key(tenancy.key("rival")),
    )
    for other in others:
        assert at(other, private, then).status_code == 404
        assert private["note_id"] not in {note["note_id"] for note in listed(other, as_of=then, limit=200)}


def test_the_floor_of_the_project_holds_for_notes(tenancy: Tenancy, as_key: Clients) -> None:
    robin = as_key(tenancy.key("acme", agent_id="robin", project_id="floor"))
    note = store(robin)
    floor = note["created_at"]
    admin = as_key(tenancy.key("acme", kind="admin"))
    assert admin.patch("/v1/admin/projects/floor", json={"as_of_floor": floor}).status_code == 200
    for path in ("/v1/notes", f"/v1/notes/{note['note_id']}"):
        assert error(robin.get(path, params={"as_of": before(floor)})) == (400, "as_of_before_retention_floor")
        assert robin.get(path, params={"as_of": floor}).status_code == 200
