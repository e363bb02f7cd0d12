"""Tombstones: what they hide, from whom, and that revoking restores exactly that."""

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest
from psycopg import sql

from app.db.catalogue import tenant_rules
from app.db.rls import Rule
from app.db.schema import load_metadata
from tests.conftest import Tenancy, TestDatabase
from tests.erasure.shared import issued, revoke, tombstone
from tests.facts.shared import body, entity, error, fact, history, ids, listed, new, note, predicate, read, year

# Written by the acts themselves, whatever they are about.
RECORDS = {"audit_log", "audit_chains", "idempotency_keys", "rate_windows", "jobs", "api_keys"}


def visible(database: TestDatabase, *, reach: str = "", agent: str = "robin") -> dict[str, set[str]]:
    """Every row of every table that the service can see from here."""
    seen: dict[str, set[str]] = {}
    with psycopg.connect(database.app) as connection:
        connection.execute("SELECT set_scope('acme', 'default', %s, NULL, %s)", (agent, reach))
        for table, rule in tenant_rules(load_metadata()).items():
            if table not in RECORDS and rule != Rule.CUSTODY:
                rows = connection.execute(sql.SQL("SELECT to_jsonb(x)::text FROM {} x").format(sql.Identifier(table)))
                seen[table] = {row for (row,) in rows}
    return seen


def stored(seen: dict[str, set[str]]) -> dict[str, set[str]]:
    """The same without what is only to be done: what is restored is embedded anew, and its words are counted anew."""
    return {table: rows for table, rows in seen.items() if table not in ("embedding_queue", "lexical_statistics")}


def hanging_on(database: TestDatabase, seen: dict[str, set[str]], *marks: str) -> list[str]:
    """Rows among these that hold one of the marks."""
    return [f"{table}: {row}" for table, rows in seen.items() for row in rows if any(mark in row for mark in marks)]


class World:
    """An entity with facts of every kind, and facts that point to it."""

    def __init__(self, robin: httpx.Client) -> None:
        self.name, self.other = new("Ada"), new("Bea")
        self.ada = entity(robin, self.name, aliases=[f"{self.name} alias"])
        entity(robin, self.other)
        self.notes = [note(robin, content=f"{self.name} was here {uuid4().hex}") for _ in range(2)]
        single = predicate(robin, cardinality="single")["name"]
        pending, knows = new("pending"), new("knows")
        self.facts = [
            fact(robin, self.name, single, "one", valid_from=year(2020), evidence=self.notes[:1]),
            fact(robin, self.name, single, "two", valid_from=year(2021)),
            fact(robin, self.name, pending, "this"),
            fact(robin, self.name, pending, "that"),
            fact(robin, self.name, knows, {"entity": self.other}),
            fact(robin, self.other, knows, {"entity": self.name}),
            fact(robin, self.name, new("p"), "private", scope="agent_private"),
        ]
        self.facts.append(fact(robin, self.name, new("p"), "derived", derived_from=[self.facts[0]["fact_hash"]]))
        self.kept = fact(robin, self.other, single, "of the other", evidence=self.notes[:1])
        robin.post(f"/v1/facts/{self.facts[2]['fact_id']}/retract", json={"reason": "no"})
        fact(robin, self.name, pending, "that", confidence=0.5)
        self.single, self.knows = single, knows


@pytest.fixture
def world(robin: httpx.Client) -> World:
    return World(robin)


def test_it_hides_everything_that_hangs_on_it(
    world: World, robin: httpx.Client, admin: httpx.Client, database: TestDatabase
) -> None:
    tombstone(admin, world.name)
    assert listed(robin, entity=world.name, include_inactive=True) == []
    assert ids(listed(robin, entity=world.other)) == [world.kept["fact_id"]]
    assert error(robin.get(f"/v1/entities/{world.name}")) == (404, "entity_not_found")
    assert error(robin.get(f"/v1/entities/{world.ada['entity_id']}")) == (404, "entity_not_found")
    for item in world.facts:
        for path in ("", "/history", "/provenance"):
            assert error(robin.get(f"/v1/facts/{item['fact_id']}{path}")) == (404, "fact_not_found")
    for found in world.notes:
        for path in ("", "/history"):
            assert error(robin.get(f"/v1/notes/{found}{path}")) == (404, "note_not_found")
    assert read(robin, world.kept["fact_id"])["evidence"] == []
    assert history(robin, world.kept["fact_id"])["evidence"] == []
    for reach in ("", "cross_project", "legal_hold"):
        left = hanging_on(
            database, visible(database, reach=reach), world.ada["entity_id"], *world.notes, *ids(world.facts)
        )
        assert left == []


@pytest.mark.parametrize("hold", [False, True])
@pytest.mark.parametrize("scope", ["*", "project_shared", ["agent_private", "public"]])
def test_revoking_restores_exactly_what_it_hid(
    world: World, admin: httpx.Client, database: TestDatabase, hold: bool, scope: Any
) -> None:
    before = stored(visible(database)), stored(visible(database, reach="legal_hold"))
    made = tombstone(admin, world.name, legal_hold=hold, scope=scope)
    assert stored(visible(database)) != before[0]
    revoked = revoke(admin, made)
    assert revoked["revocation"]["reason"] == "a mistake"
    assert (stored(visible(database)), stored(visible(database, reach="legal_hold"))) == before


def test_of_two_that_hide_the_same_fact_each_has_to_go(
    world: World, robin: httpx.Client, admin: httpx.Client, database: TestDatabase
) -> None:
    before = stored(visible(database))
    shared = {world.facts[4]["fact_id"], world.facts[5]["fact_id"]}
    first, second = tombstone(admin, world.name), tombstone(admin, world.other, legal_hold=True)
    revoke(admin, first)
    assert not shared & set(ids(listed(robin)))
    assert ids(listed(robin, entity=world.name))
    revoke(admin, second)
    assert stored(visible(database)) == before


@pytest.mark.parametrize("order", [(False, True), (True, False)])
def test_a_hold_beside_a_tombstone_does_not_open_it(
    world: World, admin: httpx.Client, database: TestDatabase, order: tuple[bool, bool]
) -> None:
    made = {hold: tombstone(admin, world.name, legal_hold=hold) for hold in order}
    now = world.facts[-1]["created_at"]
    assert listed(admin, entity=world.name, as_of=now) == []
    revoke(admin, made[False])
    assert listed(admin, entity=world.name, as_of=now), "what is left is a hold"
    assert listed(admin, entity=world.name) == []


def test_one_at_a_time_of_a_kind(world: World, admin: httpx.Client) -> None:
    made = tombstone(admin, world.name, scope=["project_shared", "public"])
    again = admin.post("/v1/tombstones", json={"entity": world.name, "reason": "again"})
    assert error(again) == (409, "tombstone_already_exists")
    assert again.json()["error"]["details"] == {"tombstone_id": made["tombstone_id"]}
    tombstone(admin, world.name, scope="agent_private")
    revoke(admin, made)
    twice = admin.post(f"/v1/tombstones/{made['tombstone_id']}/revoke", json={"reason": "again"})
    assert error(twice) == (409, "tombstone_already_revoked")
    tombstone(admin, world.name, scope="public")


def test_a_tombstone_in_some_scopes(world: World, robin: httpx.Client, admin: httpx.Client) -> None:
    made = tombstone(admin, world.name, scope="local")
    assert made["scope"] == "agent_private"
    assert world.facts[6]["fact_id"] not in ids(listed(robin, entity=world.name))
    assert world.facts[1]["fact_id"] in ids(listed(robin, entity=world.name))
    assert robin.get(f"/v1/entities/{world.name}").status_code == 200
    hidden = fact(robin, world.name, new("p"), "born hidden", scope="agent_private")
    assert hidden["subject"]["entity_id"] == world.ada["entity_id"]
    assert error(robin.get(f"/v1/facts/{hidden['fact_id']}")) == (404, "fact_not_found")
    shown = fact(robin, world.name, new("p"), "seen")
    assert read(robin, shown["fact_id"])["object"]["value"] == "seen"
    refused = admin.post("/v1/facts", json=body(world.name, new("p"), "x", scope="agent_private"))
    assert error(refused) == (409, "entity_tombstoned")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"scope": "everywhere"}, "tombstone_invalid_scope"),
        ({"scope": []}, "tombstone_invalid_scope"),
        ({"scope": ["public", 5]}, "tombstone_invalid_scope"),
        ({"scope": {"a": 1}}, "tombstone_invalid_scope"),
        ({"entity": "  "}, "tombstone_entity_invalid"),
        ({"entity": "user:"}, "tombstone_entity_invalid"),
        ({"entity": "x" * 600}, "tombstone_entity_invalid"),
        ({"entity_uri": "both"}, "tombstone_entity_invalid"),
        ({"reason": ""}, "invalid_request"),
        ({"reason": None}, "invalid_request"),
        ({"grace_seconds": 5}, "invalid_request"),
        ({"grace_seconds": -1, "erase": True}, "invalid_request"),
        ({"surprise": True}, "invalid_request"),
    ],
)
def test_a_broken_request_is_refused(
    world: World, admin: httpx.Client, database: TestDatabase, fields: dict[str, Any], code: str
) -> None:
    before = visible(database)
    refused = admin.post("/v1/tombstones", json={"entity": world.name, "reason": "r", **fields})
    assert error(refused) == (400, code)
    assert visible(database) == before


def test_an_author_who_is_no_entity_can_be_hidden(robin: httpx.Client, admin: httpx.Client) -> None:
    name = new("Quentin")
    written = note(robin, author=name)
    told = note(robin, content=f"we met {name} in the park")
    other = note(robin, author=new("Quentin"))
    made = issued(admin, entity=name)
    assert made["hidden"] == {"facts": 0, "notes": 2, "objects": 0}
    assert made["tombstone"]["entity"] == name
    for hidden in (written, told):
        assert error(robin.get(f"/v1/notes/{hidden}")) == (404, "note_not_found")
    assert error(robin.get(f"/v1/entities/{name}")) == (404, "entity_not_found")
    assert robin.get(f"/v1/notes/{other}").status_code == 200
    # What is written about it from now on is accepted and hidden at once.
    fact(robin, name, new("p"), "x")
    assert listed(robin, entity=name) == []
    revoke(admin, made["tombstone"])
    assert robin.get(f"/v1/notes/{written}").status_code == robin.get(f"/v1/notes/{told}").status_code == 200


@pytest.mark.parametrize("name", ["Bo", "Will", "李"])
def test_an_author_with_a_short_or_common_name_can_be_hidden(
    name: str, robin: httpx.Client, admin: httpx.Client
) -> None:
    written = note(robin, author=name)
    made = tombstone(admin, name)
    assert error(robin.get(f"/v1/notes/{written}")) == (404, "note_not_found")
    revoke(admin, made)


def test_the_same_request_again_returns_the_same_tombstone(world: World, admin: httpx.Client) -> None:
    sent = {"entity": world.name, "reason": "rtbf", "erase": True, "grace_seconds": 3600}
    first = issued(admin, **sent)
    again = admin.post("/v1/tombstones", json=sent)
    assert (again.status_code, again.json()) == (200, first)
    for change in ({"reason": "another"}, {"grace_seconds": 7200}, {"notes": "linked"}, {"scope": "public"}):
        other = admin.post("/v1/tombstones", json={**sent, **change})
        assert error(other) == (409, "tombstone_already_exists"), change
    revoke(admin, first["tombstone"])
    assert issued(admin, **sent)["tombstone"]["tombstone_id"] != first["tombstone"]["tombstone_id"]


def test_what_is_not_there_cannot_be_forgotten(world: World, admin: httpx.Client) -> None:
    missing = str(uuid4())
    assert error(admin.post("/v1/tombstones", json={"entity": missing, "reason": "r"})) == (404, "entity_not_found")
    for method, path, sent in (
        ("GET", "", None),
        ("GET", "/receipt", None),
        ("POST", "/revoke", {"reason": "r"}),
    ):
        answer = admin.request(method, f"/v1/tombstones/{missing}{path}", json=sent)
        assert error(answer) == (404, "tombstone_not_found")
    both = {"entity": world.name, "reason": "r", "erase": True, "legal_hold": True}
    assert error(admin.post("/v1/tombstones", json=both)) == (409, "legal_hold_active")


def test_by_alias_by_id_and_by_a_merged_name(robin: httpx.Client, admin: httpx.Client) -> None:
    kept, gone = entity(robin, aliases=[new("alias")]), entity(robin)
    robin.post(f"/v1/entities/{gone['entity_id']}/merge", json={"into": kept["entity_id"]})
    for meant in (kept["aliases"][0], kept["entity_id"], gone["entity_id"], gone["canonical"]):
        made = tombstone(admin, meant)
        assert (made["entity_id"], made["entity"]) == (kept["entity_id"], kept["canonical"])
        for hidden in (kept["canonical"], gone["canonical"], gone["entity_id"], kept["aliases"][0]):
            assert error(robin.get(f"/v1/entities/{hidden}")) == (404, "entity_not_found")
        assert robin.get("/v1/entities", params={"prefix": gone["canonical"]}).json()["entities"] == []
        revoke(admin, made)
    assert robin.get(f"/v1/entities/{gone['canonical']}").json()["entity_id"] == kept["entity_id"]


def test_an_alias_of_several_is_ambiguous_here_too(robin: httpx.Client, admin: httpx.Client) -> None:
    alias = new("alias")
    found = {entity(robin, aliases=[alias])["entity_id"] for _ in range(2)}
    refused = admin.post("/v1/tombstones", json={"entity": alias, "reason": "r"})
    assert error(refused) == (409, "entity_ambiguous")
    candidates = refused.json()["error"]["details"]["candidates"]
    assert {candidate["entity_id"] for candidate in candidates} == found


def shape(value: Any) -> Any:
    """Return a response without its ids, times and names."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items() if key not in ("request_id", "fact_hash")}
    if isinstance(value, list):
        return [shape(item) for item in value]
    if isinstance(value, str) and any(character.isdigit() for character in value):
        return "..."
    return value


READS: list[tuple[str, dict[str, str]]] = [
    ("/v1/entities/{name}", {}),
    ("/v1/entities", {"name": "{name}"}),
    ("/v1/entities", {"prefix": "{name}"}),
    ("/v1/entities/{id}", {}),
    ("/v1/facts", {"entity": "{name}"}),
    ("/v1/facts", {"entity": "{id}"}),
    ("/v1/facts", {"object": "{name}"}),
    ("/v1/facts", {"entity": "{name}", "include_inactive": "true"}),
    ("/v1/facts", {"entity": "{name}", "as_of": "2026-06-01T00:00:00Z", "include_inactive": "true"}),
    ("/v1/facts/{fact}", {}),
    ("/v1/facts/{fact}/history", {}),
    ("/v1/facts/{fact}/provenance", {}),
    ("/v1/notes/{note}", {}),
    ("/v1/notes/{note}/history", {}),
    ("/v1/conflicts", {"entity": "{name}"}),
    ("/v1/entities/{name}", {"as_of": "2026-06-01T00:00:00Z"}),
]


@pytest.mark.parametrize("hold", [False, True])
@pytest.mark.parametrize(("path", "params"), READS, ids=[f"{path} {params}" for path, params in READS])
def test_reading_it_is_reading_what_never_was(
    world: World, robin: httpx.Client, admin: httpx.Client, path: str, params: dict[str, str], hold: bool
) -> None:
    tombstone(admin, world.name, legal_hold=hold)
    hidden = {
        "name": world.name,
        "id": world.ada["entity_id"],
        "fact": world.facts[0]["fact_id"],
        "note": world.notes[0],
    }
    never = {"name": new("Ada"), "id": str(uuid4()), "fact": str(uuid4()), "note": str(uuid4())}
    answers = [
        robin.get(path.format(**words), params={key: value.format(**words) for key, value in params.items()})
        for words in (hidden, never)
    ]
    assert answers[0].status_code == answers[1].status_code
    assert shape(answers[0].json()) == shape(answers[1].json())
    assert set(answers[0].headers) == set(answers[1].headers)


WRITES: list[dict[str, Any]] = [
    {"subject": "{name}", "predicate": "w1", "object": {"value": "x"}},
    {"subject": {"canonical": "{name}", "kind": "robot"}, "predicate": "w2", "object": {"value": 5}, "confidence": 0.5},
    {"subject": "somebody w3", "predicate": "w3", "object": {"entity": "{name}"}},
    {"subject": "{name}", "predicate": "w4", "object": {"entity": "{name}"}, "valid_to": year(2060)},
    {"subject": "{name}", "predicate": "{single}", "object": {"value": "three"}, "valid_from": year(2019)},
    {"subject": "{name}", "predicate": "w5", "object": {"value": "x"}, "derived_from": ["ab" * 32], "source": "s"},
    {"subject": "{id}", "predicate": "w6", "object": {"value": "x"}},
    {"subject": "somebody w7", "predicate": "w7", "object": {"entity": {"entity_id": "{id}"}}},
]


@pytest.mark.parametrize("sent", WRITES, ids=[json.dumps(sent) for sent in WRITES])
def test_an_agent_that_writes_about_it_is_answered_as_about_somebody_new(
    world: World, robin: httpx.Client, admin: httpx.Client, sent: dict[str, Any]
) -> None:
    tombstone(admin, world.name)
    text = json.dumps(sent)

    def write(words: dict[str, str]) -> httpx.Response:
        filled = text
        for key, value in words.items():
            filled = filled.replace("{" + key + "}", value)
        return robin.post("/v1/facts", content=filled)

    never = {"name": new("Ada"), "id": str(uuid4()), "single": world.single}
    expected = write(never)
    for _ in range(2):
        answer = write({"name": world.name, "id": world.ada["entity_id"], "single": world.single})
        assert answer.status_code == expected.status_code
        assert shape(answer.json()) == shape(expected.json())
        assert world.ada["entity_id"] not in answer.text
        if answer.status_code == 201:
            made = answer.json()["fact"]["fact_id"]
            assert error(robin.get(f"/v1/facts/{made}")) == (404, "fact_not_found")


def test_an_administrator_is_told(world: World, admin: httpx.Client) -> None:
    tombstone(admin, world.name)
    by_name = body(world.name, new("p"), "x")
    for sent in (by_name, body(world.ada["entity_id"], new("p"), "x"), body(new(), new("p"), {"entity": world.name})):
        assert error(admin.post("/v1/facts", json=sent)) == (409, "entity_tombstoned")
    assert error(admin.post("/v1/entities", json={"canonical": world.name})) == (409, "entity_tombstoned")
    loose = admin.post("/v1/facts/batch", json={"facts": [by_name, body(new(), new("p"), "y")], "atomic": False})
    assert [result.get("outcome") or result["error"]["code"] for result in loose.json()["results"]] == [
        "entity_tombstoned",
        "created",
    ]


def test_an_agent_makes_the_entity_as_if_it_were_new(world: World, robin: httpx.Client, admin: httpx.Client) -> None:
    tombstone(admin, world.name)
    answer = robin.post("/v1/entities", json={"canonical": world.name.upper(), "kind": "ship", "aliases": ["Q"]})
    assert answer.status_code == 201
    made = answer.json()["entity"]
    assert (made["canonical"], made["kind"], made["aliases"]) == (world.name.upper(), "ship", ["Q"])
    assert made["entity_id"] != world.ada["entity_id"]
    assert error(robin.get(f"/v1/entities/{world.name}")) == (404, "entity_not_found")


def test_what_was_written_meanwhile_is_there_after_the_end(
    world: World, robin: httpx.Client, admin: httpx.Client
) -> None:
    made = tombstone(admin, world.name)
    fact(robin, world.name, world.single, "three", valid_from=year(2022))
    said = new("said meanwhile")
    fact(robin, world.name, new("p"), said)
    revoke(admin, made)
    values = [item["object"].get("value") for item in listed(robin, entity=world.name)]
    assert {"three", said} <= set(values)
    assert "two" not in values, "it took its place in the timeline"


def test_notes_of_the_same_words_written_meanwhile(world: World, robin: httpx.Client, admin: httpx.Client) -> None:
    content = robin.get(f"/v1/notes/{world.notes[1]}").json()["content"]
    made = tombstone(admin, world.name)
    twin = note(robin, content=content)
    revoke(admin, made)
    assert robin.get(f"/v1/notes/{world.notes[1]}").status_code == 200
    assert error(robin.get(f"/v1/notes/{twin}")) == (404, "note_not_found")
    told = robin.get(f"/v1/notes/{twin}/history").json()["events"]
    assert told[-1]["event"] == "merged"


def test_a_visible_alias_beats_a_hidden_name(robin: httpx.Client, admin: httpx.Client) -> None:
    hidden, seen = entity(robin), entity(robin)
    robin.post(f"/v1/entities/{seen['entity_id']}/aliases", json={"alias": hidden["canonical"]})
    tombstone(admin, hidden["canonical"])
    assert robin.get(f"/v1/entities/{hidden['canonical']}").json()["entity_id"] == seen["entity_id"]
    written = fact(robin, hidden["canonical"], new("p"), "x")
    assert written["subject"]["entity_id"] == seen["entity_id"]
    assert ids(listed(robin, entity=hidden["canonical"])) == [written["fact_id"]]


def test_only_administrators_forget(
    world: World, robin: httpx.Client, tenancy: Tenancy, as_key: Callable[..., httpx.Client]
) -> None:
    weak = as_key(tenancy.key("acme", kind="admin", scopes=["facts:read", "facts:write"]), "default")
    for client in (robin, weak):
        for method, path, sent in (
            ("POST", "", {"entity": world.name, "reason": "r"}),
            ("GET", "", None),
            ("GET", f"/{uuid4()}", None),
            ("POST", f"/{uuid4()}/revoke", {"reason": "r"}),
            ("GET", f"/{uuid4()}/receipt", None),
        ):
            answer = client.request(method, f"/v1/tombstones{path}", json=sent)
            assert error(answer) == (403, "tombstone_access_denied")


def test_they_are_listed_newest_first_and_never_changed(
    tenancy: Tenancy, as_key: Callable[..., httpx.Client], robin: httpx.Client, admin: httpx.Client, world: World
) -> None:
    made = [tombstone(admin, entity(robin)["canonical"]) for _ in range(3)]
    revoked = revoke(admin, made[1])
    first = admin.get("/v1/tombstones", params={"limit": 2}).json()
    assert [item["tombstone_id"] for item in first["tombstones"]] == [
        made[2]["tombstone_id"],
        made[1]["tombstone_id"],
    ]
    rest = admin.get("/v1/tombstones", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert rest["tombstones"][0] == made[0]
    assert {**revoked, "revocation": None} == made[1]
    active = admin.get("/v1/tombstones", params={"active": True, "limit": 200}).json()["tombstones"]
    assert made[1]["tombstone_id"] not in [item["tombstone_id"] for item in active]
    other = as_key(tenancy.key("acme", kind="admin"), "other")
    assert other.get("/v1/tombstones").json()["tombstones"] == []


def test_merging_carries_a_tombstone_along(robin: httpx.Client, admin: httpx.Client) -> None:
    one, other = entity(robin), entity(robin)
    private = fact(robin, one["canonical"], new("p"), "private", scope="agent_private")
    also = fact(robin, other["canonical"], new("p"), "private too", scope="agent_private")
    made = tombstone(admin, one["canonical"], scope="agent_private")
    merged = robin.post(f"/v1/entities/{one['entity_id']}/merge", json={"into": other["entity_id"]})
    assert merged.status_code == 200
    for item in (private, also):
        assert error(robin.get(f"/v1/facts/{item['fact_id']}")) == (404, "fact_not_found")
    revoke(admin, made)
    for item in (private, also):
        assert robin.get(f"/v1/facts/{item['fact_id']}").status_code == 200


def test_the_same_request_again_is_the_same_tombstone(world: World, admin: httpx.Client) -> None:
    sent = {"entity": world.name, "reason": "once"}
    headers = {"Idempotency-Key": uuid4().hex}
    first, second = (admin.post("/v1/tombstones", json=sent, headers=headers) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()
