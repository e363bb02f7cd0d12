"""End users: whose memory it is, and that nobody reads or changes that of another."""

import json
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests.conftest import Tenancy, TestDatabase

BOB, CAROL = {"X-User-Id": "bob"}, {"X-User-Id": "carol"}
SECRET = "my bank PIN hint is the name of the dog Marlowe"


def remember(client: httpx.Client, content: str, user: str | None = None, **fields: Any) -> dict[str, Any]:
    body = {"content": content, **fields} | ({} if user is None else {"user_id": user})
    response = client.post("/v1/notes", json=body)
    assert response.status_code == 201, response.text
    return response.json()["note"]


def believe(
    client: httpx.Client, subject: str, predicate: str, value: Any, user: str | None = None, **fields: Any
) -> dict[str, Any]:
    target = value if isinstance(value, dict) else {"value": value, "type": "string"}
    body = {"subject": subject, "predicate": predicate, "object": target, **fields}
    response = client.post("/v1/facts", json=body | ({} if user is None else {"user_id": user}))
    assert response.status_code in (200, 201), response.text
    return response.json()["fact"]


def recall(client: httpx.Client, query: str, **options: Any) -> list[dict[str, Any]]:
    response = client.post("/v1/recall", json={"query": query, **options})
    assert response.status_code == 200, response.text
    return response.json()["results"]


def test_bob_is_not_told_what_carol_said(robin: httpx.Client) -> None:
    remember(robin, "Bob lives in Lisbon near the river", "bob")
    remember(robin, SECRET, "carol")
    remember(robin, "The office in Lisbon closes at six")
    for options in ({"user_id": "bob"}, {"user_id": "bob", "rendered": True}):
        response = robin.post("/v1/recall", json={"query": "Where does Bob live, and what is the PIN hint?", **options})
        assert "Marlowe" not in response.text
        assert "near the river" in response.text
        assert "closes at six" in response.text
    assert any("Marlowe" in str(result) for result in recall(robin, "bank PIN hint"))
    assert "Marlowe" in robin.post("/v1/recall", json={"query": "PIN hint"}, headers=CAROL).text


def test_every_read_of_another_users_row_is_404(robin: httpx.Client) -> None:
    note = remember(robin, "Carol collects glass paperweights", "carol", thread_id="t1")
    fact = believe(robin, "paperweight shop", "located_in", "Prague", "carol", evidence=[note["note_id"]])
    entity = fact["subject"]["entity_id"]
    paths = [
        f"/v1/notes/{note['note_id']}",
        f"/v1/notes/{note['note_id']}/history",
        f"/v1/facts/{fact['fact_id']}",
        f"/v1/facts/{fact['fact_id']}/history",
        f"/v1/facts/{fact['fact_id']}/provenance",
        f"/v1/entities/{entity}",
        "/v1/entities/paperweight shop",
        "/v1/threads/t1",
        "/v1/users/carol",
    ]
    for path in paths:
        assert robin.get(path, headers=CAROL).status_code == 200, path
        response = robin.get(path, headers=BOB)
        assert response.status_code in (400, 404), (path, response.text)
        assert "paperweight" not in response.text.replace(path, "")
    for path in ("/v1/notes", "/v1/facts", "/v1/entities", "/v1/facts?entity=paperweight shop", "/v1/threads"):
        assert note["content"] not in robin.get(path, headers=BOB).text
        assert "paperweight" not in robin.get(path, headers=BOB).text
        assert robin.get(path, headers=CAROL).status_code == 200
    neighbours = robin.get("/v1/graph/neighbors", params={"entity": "paperweight shop"}, headers=BOB)
    assert neighbours.json()["neighbors"] == []


def test_writes_to_another_users_rows_are_404(robin: httpx.Client) -> None:
    note = remember(robin, "Carol feeds the neighbour's cat on Sundays", "carol")
    fact = believe(robin, "cat of the neighbour", "eats", "tuna", "carol")
    tries = [
        robin.patch(f"/v1/notes/{note['note_id']}", json={"reason": "r", "pinned": True}, headers=BOB),
        robin.delete(f"/v1/notes/{note['note_id']}?reason=r", headers=BOB),
        robin.patch(f"/v1/facts/{fact['fact_id']}", json={"valid_to": None}, headers=BOB),
        robin.post(f"/v1/facts/{fact['fact_id']}/retract", json={}, headers=BOB),
        robin.post(
            "/v1/facts",
            json={
                "subject": "Bob",
                "predicate": "knows",
                "object": {"value": "x", "type": "string"},
                "evidence": [note["note_id"]],
            },
            headers=BOB,
        ),
        robin.post(
            "/v1/facts",
            json={
                "subject": {"entity_id": fact["subject"]["entity_id"]},
                "predicate": "knows",
                "object": {"value": "x", "type": "string"},
            },
            headers=BOB,
        ),
    ]
    assert [response.status_code for response in tries] == [404] * len(tries)
    assert robin.get(f"/v1/notes/{note['note_id']}", headers=CAROL).json()["pinned"] is False


def test_what_is_common_is_read_only_to_users(robin: httpx.Client) -> None:
    note = remember(robin, "The canteen serves soup on Mondays")
    fact = believe(robin, "canteen", "serves", "soup")
    assert robin.get(f"/v1/notes/{note['note_id']}", headers=BOB).json()["user_id"] is None
    tries = [
        robin.patch(f"/v1/notes/{note['note_id']}", json={"reason": "r", "pinned": True}, headers=BOB),
        robin.delete(f"/v1/notes/{note['note_id']}?reason=r", headers=BOB),
        robin.patch(f"/v1/facts/{fact['fact_id']}", json={"valid_to": "2040-01-01T00:00:00Z"}, headers=BOB),
        robin.post(f"/v1/facts/{fact['fact_id']}/retract", json={}, headers=BOB),
    ]
    assert [(response.status_code, response.json()["error"]["code"]) for response in tries] == [
        (403, "shared_read_only")
    ] * 4
    assert robin.patch(f"/v1/notes/{note['note_id']}", json={"reason": "r", "pinned": True}).status_code == 200


def test_mom_of_two_users_is_two_entities(robin: httpx.Client) -> None:
    first = believe(robin, "mom", "lives_in", "Turin", "bob")
    second = believe(robin, "mom", "lives_in", "Oslo", "carol")
    assert first["subject"]["entity_id"] != second["subject"]["entity_id"]
    assert first["user_id"] == "bob"
    for user, place in ((BOB, "Turin"), (CAROL, "Oslo")):
        facts = robin.get("/v1/facts", params={"entity": "mom"}, headers=user).json()["facts"]
        assert [fact["object"]["value"] for fact in facts] == [place]
        named = robin.get("/v1/entities", params={"name": "mom"}, headers=user).json()["entities"]
        assert len(named) == 1
    # The service's own view has both, and cannot tell which one a name means.
    assert len(robin.get("/v1/entities", params={"name": "mom"}).json()["entities"]) == 2
    assert robin.get("/v1/entities/mom").json()["error"]["code"] == "entity_ambiguous"


def test_beliefs_and_timelines_are_per_user(robin: httpx.Client, admin: httpx.Client) -> None:
    predicate = believe(robin, "the boiler", "set_to_degrees", "60")["predicate"]["predicate_id"]
    change = {"cardinality": "single", "status": "active"}
    assert admin.patch(f"/v1/predicates/{predicate}", json=change).status_code == 200
    mine = robin.post(
        "/v1/facts",
        json={
            "subject": "the boiler",
            "predicate": "set_to_degrees",
            "object": {"value": "70", "type": "string"},
            "user_id": "bob",
        },
    ).json()
    assert mine["superseded"] == []
    assert mine["conflicts"] == []
    values = {
        user: sorted(
            fact["object"]["value"]
            for fact in robin.get("/v1/facts", params={"entity": "the boiler"}, headers=headers).json()["facts"]
        )
        for user, headers in (("bob", BOB), ("carol", CAROL))
    }
    # Bob's fact is about the entity that all share; what all share stays beside it.
    assert values == {"bob": ["60", "70"], "carol": ["60"]}


def test_notes_and_positions_are_deduplicated_per_user(robin: httpx.Client) -> None:
    place = {"thread_id": "chat", "position": 1}
    mine = remember(robin, "hello there", "bob", **place)
    theirs = remember(robin, "hello there", "carol", **place)
    assert mine["note_id"] != theirs["note_id"]
    again = robin.post("/v1/notes", json={"content": "hello there", "user_id": "bob", **place})
    assert (again.status_code, again.json()["note"]["note_id"]) == (200, mine["note_id"])
    turns = robin.get("/v1/threads/chat", headers=BOB).json()["notes"]
    assert [turn["note_id"] for turn in turns] == [mine["note_id"]]


def test_aliases_of_a_user_are_not_told_to_others(robin: httpx.Client) -> None:
    entity = believe(robin, "Margaret Oakes", "works_as", "pilot")["subject"]["entity_id"]
    made = robin.post(f"/v1/entities/{entity}/aliases", json={"alias": "my sweetheart"}, headers=BOB)
    assert made.status_code == 201, made.text
    assert robin.get("/v1/entities/my sweetheart", headers=BOB).json()["entity_id"] == entity
    assert robin.get("/v1/entities/my sweetheart", headers=CAROL).status_code == 404
    assert robin.get(f"/v1/entities/{entity}", headers=CAROL).json()["aliases"] == []


def test_entities_of_different_users_cannot_be_merged(robin: httpx.Client) -> None:
    one = believe(robin, "gran", "likes", "tea", "bob")["subject"]["entity_id"]
    other = believe(robin, "grandmother", "likes", "tea")["subject"]["entity_id"]
    response = robin.post(f"/v1/entities/{one}/merge", json={"into": other})
    assert response.json()["error"]["code"] == "different_users"


@pytest.mark.parametrize(
    ("headers", "body", "code"),
    [
        (BOB, {"user_id": "carol"}, "user_mismatch"),
        ({"X-User-Id": "a\tb"}, {}, "invalid_user"),
        ({}, {"user_id": "a\u0007"}, "invalid_user"),
        ({}, {"user_id": "*"}, "invalid_user"),
        ({"X-User-Id": "*"}, {}, "invalid_user"),
        ({"X-User-Id": "x" * 256}, {}, "invalid_user"),
    ],
)
def test_users_that_are_refused(robin: httpx.Client, headers: Any, body: dict[str, str], code: str) -> None:
    response = robin.post("/v1/notes", json={"content": "hello", **body}, headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (400, code)


def test_ids_of_users_are_opaque(robin: httpx.Client) -> None:
    for user in ("auth0|5f0c", "me@example.org", "Ölaf", str(uuid4()), "BOB"):
        note = remember(robin, f"greetings from {user}", user)
        assert note["user_id"] == user
        listed = robin.get("/v1/notes", headers=[(b"X-User-Id", user.encode())]).json()["notes"]
        assert note["note_id"] in [found["note_id"] for found in listed]
    # In one normal form, and case matters.
    assert remember(robin, "decomposed", "O\u0308laf")["user_id"] == "Ölaf"
    assert "greetings from BOB" not in robin.get("/v1/notes", headers=BOB).text


def test_a_key_bound_to_a_user_is_that_user(
    tenancy: Tenancy, admin: httpx.Client, as_key: Callable[..., httpx.Client], robin: httpx.Client
) -> None:
    made = admin.post(
        "/v1/admin/keys",
        json={"kind": "agent", "agent_id": "phone", "project_id": "default", "user_id": "bob"},
    )
    assert made.status_code == 201, made.text
    phone = as_key(made.json()["key"])
    assert phone.get("/v1/whoami").json()["user_id"] == "bob"
    note = remember(phone, "Bob's phone says hello")
    assert note["user_id"] == "bob"
    theirs = remember(robin, "Carol's tablet says hello", "carol")
    assert phone.get(f"/v1/notes/{theirs['note_id']}").status_code == 404
    for response in (
        phone.get("/v1/notes", headers=CAROL),
        phone.post("/v1/notes", json={"content": "x", "user_id": "carol"}),
    ):
        assert (response.status_code, response.json()["error"]["code"]) == (403, "user_forbidden")
    assert phone.get("/v1/users").json()["users"][0]["user_id"] == "bob"
    assert len(phone.get("/v1/users").json()["users"]) == 1


def test_a_project_can_demand_a_user(
    tenancy: Tenancy, admin: httpx.Client, as_key: Callable[..., httpx.Client]
) -> None:
    tenancy.tenant("strict", "default")
    chief = as_key(tenancy.key("strict", kind="admin"), "default")
    agent = as_key(tenancy.key("strict", agent_id="robin"))
    remember(agent, "nobody in particular said this")
    assert chief.patch("/v1/admin/projects/default", json={"require_user": True}).status_code == 200
    tries = [
        agent.get("/v1/notes"),
        agent.post("/v1/notes", json={"content": "x"}),
        agent.post("/v1/recall", json={"query": "x"}),
        agent.get("/v1/recall?query=x"),
        agent.get("/v1/users"),
    ]
    assert [(found.status_code, found.json()["error"]["code"]) for found in tries] == [(400, "user_required")] * 5
    assert remember(agent, "Bob said this", "bob")["user_id"] == "bob"
    assert agent.get("/v1/notes", headers=BOB).status_code == 200
    assert chief.get("/v1/notes").status_code == 200


def test_users_are_listed_with_counts(robin: httpx.Client, rival: httpx.Client) -> None:
    remember(robin, "zoe keeps bees", "zoe", thread_id="z")
    believe(robin, "bees", "kept_by", "zoe", "zoe")
    first = robin.get("/v1/users", params={"limit": 1}).json()
    seen, cursor = [first["users"][0]["user_id"]], first["next_cursor"]
    while cursor:
        page = robin.get("/v1/users", params={"limit": 1, "cursor": cursor}).json()
        seen += [user["user_id"] for user in page["users"]]
        cursor = page["next_cursor"]
    assert len(seen) == len(set(seen))
    assert "zoe" in seen
    assert rival.get("/v1/users").json()["users"] == []
    profile = robin.get("/v1/users/zoe").json()
    assert profile["user"]["notes"] == 1
    assert profile["user"]["threads"] == 1
    assert "bees kept by zoe" in profile["profile"]
    assert robin.get("/v1/users/nobody-yet").status_code == 404


def test_everything_of_a_user_is_exported(robin: httpx.Client) -> None:
    note = remember(robin, "first words", "ellen")
    robin.patch(
        f"/v1/notes/{note['note_id']}",
        json={"reason": "typo", "content": "better words"},
        headers={"X-User-Id": "ellen"},
    )
    believe(robin, "ellen's boat", "called", "Petrel", "ellen")
    remember(robin, "common words")
    lines = [json.loads(line) for line in robin.get("/v1/users/ellen/export").text.splitlines()]
    assert lines[-1] == {
        "kind": "end",
        "user_id": "ellen",
        "counts": {"entity": 1, "document": 0, "note": 1, "fact": 1},
    }
    assert next(line for line in lines if line["kind"] == "note")["history"][-1]["old_content"] == "first words"
    assert all(line["user_id"] == "ellen" for line in lines)


def test_scopes_bound_what_is_told_of_a_user(
    tenancy: Tenancy, as_key: Callable[..., httpx.Client], robin: httpx.Client
) -> None:
    remember(robin, "spoken by Kim", "kim", thread_id="k")
    believe(robin, "kim's kite", "coloured", "red", "kim")
    for scope, told, kept in (("notes:read", "spoken by Kim", "kite"), ("facts:read", "kite", "spoken by Kim")):
        client = as_key(tenancy.key("acme", agent_id="robin", scopes=[scope]))
        exported = client.get("/v1/users/kim/export").text
        assert told in exported
        assert kept not in exported
        assert ("red" in client.get("/v1/users/kim").text) is (scope == "facts:read")
        assert (client.get("/v1/threads").status_code == 200) is (scope == "notes:read")
        assert (
            kept
            not in client.post("/v1/context", json={"user_id": "kim", "thread_id": "k", "query": "kite spoken"}).text
        )


def test_a_thread_is_deleted_for_one_user(robin: httpx.Client) -> None:
    mine = remember(robin, "mine", "fay", thread_id="shared-id")
    theirs = remember(robin, "theirs", "gus", thread_id="shared-id")
    assert robin.delete("/v1/threads/shared-id", headers={"X-User-Id": "fay"}).status_code == 400
    gone = robin.delete("/v1/threads/shared-id?reason=asked", headers={"X-User-Id": "fay"}).json()
    assert (gone["notes"], gone["note_ids"]) == (1, [mine["note_id"]])
    assert robin.get(f"/v1/notes/{theirs['note_id']}").status_code == 200


def dump(superuser: psycopg.Connection[dict[str, Any]], where: str = "true") -> dict[str, list[str]]:
    """Return every row of every table as text."""
    names = superuser.execute(
        "SELECT c.relname AS name FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace "
        "AND c.relkind = 'r' AND NOT c.relispartition OR c.relname = 'embeddings' ORDER BY 1"
    ).fetchall()
    return {
        row["name"]: [
            found["row"]
            for found in superuser.execute(f"SELECT x::text AS row FROM {row['name']} x ORDER BY 1".encode()).fetchall()
        ]
        for row in names
    }


def test_a_user_is_erased(
    robin: httpx.Client,
    admin: httpx.Client,
    worker: None,
    superuser: psycopg.Connection[dict[str, Any]],
) -> None:
    marker = "Quillfeather"
    user = f"user-{marker}"
    headers = {"X-User-Id": user}
    note = remember(robin, f"{marker} said this", user, author=marker, thread_id=marker, tags=[marker])
    robin.patch(
        f"/v1/notes/{note['note_id']}", json={"reason": marker, "content": f"{marker} said that"}, headers=headers
    )
    believe(robin, marker, "knows", {"entity": f"{marker}'s friend"}, user, evidence=[note["note_id"]], source=marker)
    believe(robin, marker, "age", marker, user)
    robin.post(
        "/v1/documents",
        json={"content": f"# {marker}\n\nA text.", "source_type": "markdown", "title": marker, "user_id": user},
    )
    robin.post("/v1/notes", json={"content": f"{marker} again", "user_id": user}, headers={"Idempotency-Key": "quill"})
    recall(robin, f"what does {marker} know", user_id=user)
    admin.post(
        "/v1/admin/keys",
        json={"kind": "agent", "agent_id": "q", "project_id": "default", "user_id": user, "name": marker},
    )
    bystander = remember(robin, "Hal is a bystander", "hal")
    held = superuser.execute("SELECT x::text AS row FROM memory_notes x WHERE user_id = 'hal'").fetchone()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        open_jobs = superuser.execute(
            "SELECT count(*) AS n FROM jobs WHERE status IN ('pending', 'leased') AND kind <> 'audit_seal'"
        ).fetchone()
        if open_jobs == {"n": 0}:
            break
        time.sleep(0.1)

    assert robin.delete(f"/v1/users/{user}").status_code == 403
    asked = admin.delete(f"/v1/users/{user}")
    assert asked.status_code == 202, asked.text
    while (receipt := admin.get(f"/v1/users/{user}/receipt")).status_code == 404 and time.monotonic() < deadline + 60:
        time.sleep(0.1)
    erasures = superuser.execute("SELECT status, last_error FROM jobs WHERE kind = 'erase_user'").fetchall()
    assert receipt.status_code == 200, erasures
    assert receipt.json()["receipt"]["destroyed"]["memory_notes"] >= 2

    left = {table: [row for row in rows if marker.lower() in row.lower()] for table, rows in dump(superuser).items()}
    assert {table: rows for table, rows in left.items() if rows} == {}
    assert superuser.execute("SELECT x::text AS row FROM memory_notes x WHERE user_id = 'hal'").fetchone() == held
    assert robin.get(f"/v1/notes/{bystander['note_id']}").status_code == 200


def test_a_legal_hold_blocks_the_erasure_of_a_user(robin: httpx.Client, admin: httpx.Client) -> None:
    believe(robin, "Ledger of Iris", "contains", "figures", "iris")
    remember(robin, "The Ledger of Iris is in the safe", "iris")
    held = admin.post("/v1/tombstones", json={"entity": "Ledger of Iris", "reason": "court", "legal_hold": True})
    assert held.status_code == 201, held.text
    refused = admin.delete("/v1/users/iris")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "legal_hold_active")


def test_a_user_sees_nothing_where_the_setting_is_missing(database: TestDatabase, robin: httpx.Client) -> None:
    remember(robin, "Jo owns a kayak", "jo")
    with psycopg.connect(database.app, autocommit=True) as connection:
        for setting, expected in (("", 0), ("jo", 1), ("ivy", 0), ("*", 1)):
            with connection.transaction():
                connection.execute("SELECT set_scope('acme', 'default', 'robin', '{}', '', %s)", (setting,))
                found = connection.execute("SELECT count(*) FROM memory_notes WHERE user_id = 'jo'").fetchone()
                assert found == (expected,), setting
        with connection.transaction():
            connection.execute("SELECT set_scope('acme', 'default', 'robin', '{}', '')")
            assert connection.execute("SELECT count(*) FROM memory_notes WHERE user_id <> ''").fetchone() == (0,)
