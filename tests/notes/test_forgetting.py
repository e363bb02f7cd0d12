"""Forgetting many notes at once: by a filter, previewed, confirmed above 25."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import pytest

from app.access import Principal
from app.confirmations import Confirmation
from app.errors import BadRequest, Conflict
from app.paging import CURSOR_TTL_SECONDS, CursorSigner
from tests.conftest import Tenancy

Clients = Callable[..., httpx.Client]


@pytest.fixture(scope="module", autouse=True)
def tenants(tenancy: Tenancy) -> None:
    tenancy.tenant("acme")


@pytest.fixture
def agent(tenancy: Tenancy, as_key: Clients, tenants: None) -> httpx.Client:
    return as_key(tenancy.key("acme", agent_id="robin"))


@pytest.fixture
def other(tenancy: Tenancy, as_key: Clients, tenants: None) -> httpx.Client:
    return as_key(tenancy.key("acme", agent_id="wren"))


@pytest.fixture
def author() -> str:
    return f"Author {uuid4().hex}"


def store(client: httpx.Client, author: str, count: int, **fields: Any) -> list[str]:
    notes = [{"content": f"{author} said {index} {uuid4().hex}", "author": author, **fields} for index in range(count)]
    answer = client.post("/v1/notes/batch", json={"notes": notes})
    assert answer.status_code == 200, answer.text
    return [result["note"]["note_id"] for result in answer.json()["results"]]


def forget(client: httpx.Client, author: str, **fields: Any) -> httpx.Response:
    return client.post("/v1/notes/forget", json={"filter": {"author": author}, "reason": "asked to", **fields})


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def live(client: httpx.Client, notes: list[str]) -> list[str]:
    return [note for note in notes if client.get(f"/v1/notes/{note}").status_code == 200]


def test_a_dry_run_tells_and_writes_nothing(agent: httpx.Client, other: httpx.Client, author: str) -> None:
    notes = store(agent, author, 12)
    (private,) = store(other, author, 1, scope="agent_private")
    (pinned,) = store(agent, author, 1, pinned=True)
    fact = {"subject": author, "predicate": "said", "object": {"value": "it"}, "evidence": notes[:2]}
    assert agent.post("/v1/facts", json=fact).status_code == 201
    told = forget(agent, author, dry_run=True).json()
    counts = {name: told[name] for name in ("dry_run", "notes", "derived", "facts", "pinned", "note_ids")}
    assert counts == {"dry_run": True, "notes": 12, "derived": 0, "facts": 1, "pinned": 1, "note_ids": []}
    assert (len(told["sample"]), told["confirm_token"]) == (10, None)
    assert live(agent, notes) == notes
    done = forget(agent, author).json()
    assert (done["dry_run"], done["notes"], done["facts"], done["pinned"]) == (False, 12, 1, 1)
    assert set(done["note_ids"]) == set(notes)
    assert live(agent, [*notes, pinned]) == [pinned]
    assert live(other, [private]) == [private]
    assert agent.get("/v1/facts", params={"entity": author}).json()["facts"] == []
    assert forget(agent, author, force=True).json()["notes"] == 1
    # Each can be recovered, with the facts that rested on it.
    assert agent.post(f"/v1/notes/{notes[0]}/recover", json={"reason": "no"}).status_code == 200
    assert len(agent.get("/v1/facts", params={"entity": author}).json()["facts"]) == 1


def test_more_than_25_need_a_token_for_exactly_these(agent: httpx.Client, other: httpx.Client, author: str) -> None:
    notes = store(agent, author, 26)
    refused = forget(agent, author)
    assert code(refused) == (409, "confirmation_required")
    assert refused.json()["error"]["details"]["count"] == 26
    token = forget(agent, author, dry_run=True).json()["confirm_token"]
    # Not for another caller, another filter, or other options.
    assert code(forget(other, author, confirm_token=token)) == (400, "confirm_token_invalid")
    assert code(forget(agent, author, confirm_token=token, force=True)) == (400, "confirm_token_invalid")
    narrower = {"author": author, "type": "semantic"}
    assert code(forget(agent, author, filter=narrower, confirm_token=token)) == (400, "confirm_token_invalid")
    assert code(forget(agent, author, confirm_token="x" * 40)) == (400, "confirm_token_invalid")
    # Not for other notes.
    (more,) = store(agent, author, 1)
    changed = forget(agent, author, confirm_token=token)
    assert code(changed) == (409, "confirmation_outdated")
    assert changed.json()["error"]["details"] == {"count": 27, "confirmed": 26}
    assert live(agent, notes) == notes
    token = forget(agent, author, dry_run=True).json()["confirm_token"]
    assert set(forget(agent, author, confirm_token=token).json()["note_ids"]) == {*notes, more}
    assert forget(agent, author, confirm_token=token).json()["notes"] == 0


def test_a_token_expires() -> None:
    signer = CursorSigner(b"secret")
    who = Principal(tenant_id="acme", project_id="default", key_id="k", kind="agent")
    ids = [str(uuid4()) for _ in range(26)]
    binding = '["acme","default","k","*","forget_notes",[]]'
    old = signer.sign([26, b""], binding=binding, now=-CURSOR_TTL_SECONDS)
    with pytest.raises(BadRequest, match="expired"):
        Confirmation(signer, who, "forget_notes", token=old).require(ids)
    fresh = Confirmation(signer, who, "forget_notes", token=None)
    Confirmation(signer, who, "forget_notes", token=fresh.issue(ids)).require(reversed(ids))
    with pytest.raises(Conflict, match="26 notes"):
        fresh.require(ids)
    fresh.require(ids[:25])


def test_filters_are_required_and_known(agent: httpx.Client, author: str) -> None:
    body = {"reason": "r", "filter": {}}
    assert code(agent.post("/v1/notes/forget", json=body)) == (400, "filter_required")
    assert agent.post("/v1/notes/forget", json={**body, "filter": {"writer": "x"}}).status_code == 400
    assert agent.post("/v1/notes/forget", json={"filter": {"author": author}}).status_code == 400


@pytest.mark.parametrize("field", ["tag", "thread_id", "type", "since", "until", "agent_id", "scope"])
def test_every_filter_selects(agent: httpx.Client, author: str, field: str) -> None:
    meant: dict[str, Any] = {
        "tag": {"tags": ["old"]},
        "thread_id": {"thread_id": "t-1"},
        "type": {"type": "plan"},
        "since": {"occurred_at": "2026-02-01T00:00:00Z"},
        "until": {"occurred_at": "2019-02-01T00:00:00Z"},
        "agent_id": {},
        "scope": {"scope": "agent_private"},
    }
    asked = {
        "tag": "old", "thread_id": "t-1", "type": "plan", "since": "2026-01-01T00:00:00Z",
        "until": "2020-01-01T00:00:00Z", "agent_id": "robin", "scope": "local",
    }  # fmt: skip
    (wanted,) = store(agent, author, 1, **{"occurred_at": "2025-01-01T00:00:00Z", **meant[field]})
    (kept,) = store(agent, author, 1, occurred_at="2025-01-01T00:00:00Z")
    done = forget(agent, author, filter={"author": author, field: asked[field]}).json()
    expected = {wanted, kept} if field == "agent_id" else {wanted}
    assert set(done["note_ids"]) == expected


def test_gardens_one_only_reads_stay(agent: httpx.Client, other: httpx.Client, author: str) -> None:
    made = agent.post("/v1/gardens", json={"slug": f"g-{uuid4().hex[:8]}", "scope": "project_shared"})
    garden = made.json()["garden"]["garden_id"]
    put = agent.put(f"/v1/gardens/{garden}/members/wren", json={"role": "reader"})
    assert put.status_code == 201
    (inside,) = store(agent, author, 1, garden_id=garden)
    (outside,) = store(agent, author, 1)
    assert forget(other, author).json()["note_ids"] == [outside]
    refused = other.post("/v1/notes/forget", json={"reason": "r", "filter": {"garden_id": garden}})
    assert code(refused) == (403, "garden_forbidden")
    assert live(agent, [inside]) == [inside]
    assert forget(agent, author).json()["note_ids"] == [inside]
