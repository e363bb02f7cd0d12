"""Legal holds preserve hidden facts, hidden values do not change visible ones, and concurrent writers agree."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psycopg
import pytest

from tests.conftest import Tenancy, TestDatabase
from tests.erasure.shared import events, revoke, tombstone, until_erased
from tests.facts.conftest import UNLIMITED
from tests.facts.shared import body, entity, error, fact, ids, listed, new, note, predicate, read, write, year
from tests.long import sized

pytestmark = pytest.mark.usefixtures("worker")


def now(database: TestDatabase) -> str:
    with psycopg.connect(database.superuser) as connection:
        row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    return row[0].isoformat()


def held(admin: httpx.Client, fact_id: str, database: TestDatabase) -> dict[str, Any]:
    """A fact under a hold, as an administrator reads it now."""
    answer = admin.get(f"/v1/facts/{fact_id}", params={"as_of": now(database)})
    assert answer.status_code == 200, answer.text
    shown = answer.json()
    del shown["tombstone_notices"], shown["tombstone_status"]
    return shown


@pytest.fixture
def single(robin: httpx.Client) -> str:
    return predicate(robin, cardinality="single")["name"]


def test_nothing_an_agent_writes_changes_what_is_held(
    robin: httpx.Client, admin: httpx.Client, database: TestDatabase, single: str
) -> None:
    name, undecided, other = new("Held"), new("undecided"), new("Visible")
    facts = [
        fact(robin, name, single, "kept", valid_from=year(2020), confidence=0.9),
        fact(robin, name, undecided, "this", confidence=0.9),
        fact(robin, name, undecided, "that", confidence=0.9),
        fact(robin, other, single, {"entity": name}, valid_from=year(2020)),
    ]
    facts = [read(robin, item["fact_id"]) for item in facts]
    tombstone(admin, name, legal_hold=True)
    write(robin, name, single, "forged", valid_from=year(2020))
    write(robin, name, single, "later", valid_from=year(2021))
    write(robin, name, undecided, "this", confidence=0.1)
    write(robin, other, single, {"entity": new()}, valid_from=year(2020))
    write(robin, other, single, {"entity": new()}, valid_from=year(2021))
    meant = robin.get("/v1/predicates", params={"prefix": undecided}).json()["predicates"][0]["predicate_id"]
    decided = robin.patch(f"/v1/predicates/{meant}", json={"status": "active", "cardinality": "single"})
    assert decided.status_code == 200, "what nobody can see is no reason to refuse"
    for item in facts:
        after = held(admin, item["fact_id"], database)
        changed = {key for key in after if after[key] != item[key]}
        # That the predicate was decided upon is said of the predicate, and of what it left undecided.
        assert changed <= {"predicate", "contradicted"}, item


def test_a_merge_does_not_fold_what_is_held(robin: httpx.Client, admin: httpx.Client, database: TestDatabase) -> None:
    one, other, name = entity(robin), entity(robin), new("p")
    kept = fact(robin, one["canonical"], name, "same", scope="agent_private")
    fact(robin, other["canonical"], name, "same", scope="agent_private")
    tombstone(admin, one["canonical"], legal_hold=True, scope="agent_private")
    merged = robin.post(f"/v1/entities/{one['entity_id']}/merge", json={"into": other["entity_id"]}).json()
    assert (merged["facts_moved"], merged["facts_folded"]) == (0, 0)
    with psycopg.connect(database.superuser) as connection:
        row = connection.execute(
            "SELECT retracted_at, suppression FROM graph_facts WHERE fact_id = %s", (kept["fact_id"],)
        ).fetchone()
    assert row == (None, 2)


def test_hidden_values_move_nothing_that_can_be_seen(robin: httpx.Client, admin: httpx.Client, single: str) -> None:
    bob, hidden = new("Bob"), entity(robin)["canonical"]
    first = fact(robin, bob, single, {"entity": new()}, valid_from=year(2020))
    made = tombstone(admin, hidden)
    answer = write(robin, bob, single, {"entity": hidden}, valid_from=year(2022))
    assert answer["superseded"] == []
    assert ids(listed(robin, entity=bob)) == [first["fact_id"]]
    between = fact(robin, bob, single, {"entity": new()}, valid_from=year(2021))
    assert between["valid_to"] is None, "its end would tell when the hidden one starts"
    moved = robin.patch(f"/v1/facts/{first['fact_id']}", json={"valid_to": year(2019 + 1)[:-1] + "Z"})
    assert error(moved)[0] == 400
    revoke(admin, made)
    (current,) = listed(robin, entity=bob)
    assert current["object"]["entity"]["canonical"] == hidden, "restored, it takes its place"
    assert read(robin, between["fact_id"])["valid_to"] == year(2022)


def test_the_next_of_a_timeline_is_not_told_when_it_is_hidden(
    robin: httpx.Client, admin: httpx.Client, single: str
) -> None:
    bob, hidden = new("Bob"), entity(robin)["canonical"]
    first = fact(robin, bob, single, {"entity": new()}, valid_from=year(2020))
    fact(robin, bob, single, {"entity": hidden}, valid_from=year(2022))
    made = tombstone(admin, hidden)
    reopened = robin.patch(f"/v1/facts/{first['fact_id']}", json={"valid_to": None})
    assert reopened.status_code == 200
    revoke(admin, made)
    assert read(robin, first["fact_id"])["valid_to"] == year(2022)


def test_said_again_while_hidden_it_is_one_belief_after_the_end(robin: httpx.Client, admin: httpx.Client) -> None:
    name, said = new("Ada"), new("p")
    first = fact(robin, name, said, "x", confidence=0.8)
    made = tombstone(admin, name)
    evidence = note(robin)
    for _ in range(2):
        write(robin, name, said, "x", confidence=0.2, evidence=[evidence])
    revoke(admin, made)
    (found,) = listed(robin, entity=name)
    assert (found["fact_id"], found["mentions"], found["evidence"]) == (first["fact_id"], 3, [evidence])
    assert found["confidence"] == pytest.approx(0.4)


def test_a_hold_on_one_is_not_broken_by_erasing_another(
    robin: httpx.Client, admin: httpx.Client, database: TestDatabase
) -> None:
    alice, bob = new("Alice Quag"), new("Bob")
    kept = fact(robin, bob, new("p"), "of bob", source=f"user {alice}", scope="org_shared")
    spouse = fact(robin, bob, new("spouse"), f"{alice} herself", scope="org_shared")
    entity(robin, alice)
    hold = tombstone(admin, bob, legal_hold=True, scope="org_shared")
    refused = admin.post("/v1/tombstones", json={"entity": alice, "reason": "r", "erase": True})
    assert error(refused) == (409, "legal_hold_active"), "a held fact names her"
    receipt = until_erased(admin, tombstone(admin, alice, erase=True, notes="linked"))["receipt"]
    assert held(admin, kept["fact_id"], database)["source"] == f"user {alice}"
    assert held(admin, spouse["fact_id"], database)["object"]["value"] == f"{alice} herself"
    assert {"graph_facts"} <= {entry["table"] for entry in receipt["names_left"]}
    revoke(admin, hold)


def test_the_evidence_of_what_is_held_is_kept(robin: httpx.Client, admin: httpx.Client) -> None:
    alice, bob = new("Alice Quag"), new("Bob")
    told = note(robin, content=f"{alice} told about somebody")
    fact(robin, bob, new("p"), "x", scope="org_shared", evidence=[told])
    entity(robin, alice)
    tombstone(admin, bob, legal_hold=True, scope="org_shared")
    refused = admin.post("/v1/tombstones", json={"entity": alice, "reason": "r", "erase": True})
    assert error(refused) == (409, "legal_hold_active")


def test_what_was_erased_in_one_scope_can_be_erased_whole(
    robin: httpx.Client, admin: httpx.Client, database: TestDatabase
) -> None:
    name = new("Partly")
    fact(robin, name, new("p"), "gone", scope="org_shared")
    fact(robin, name, new("p"), "still there")
    until_erased(admin, tombstone(admin, name, scope="org_shared", erase=True))
    again = fact(robin, name, new("p"), "written since", scope="org_shared")
    assert again["fact_id"] in ids(listed(robin, entity=name))
    everywhere = ["agent_private", "project_shared", "org_shared", "public"]
    made = tombstone(admin, name, scope=everywhere, erase=True)
    assert made["scope"] == "*"
    until_erased(admin, made)
    assert robin.get("/v1/entities", params={"name": name}).json()["entities"] == []


def test_what_is_hidden_can_be_erased_without_showing_it_again(robin: httpx.Client, admin: httpx.Client) -> None:
    name = new("Hidden")
    fact(robin, name, new("p"), "x")
    first = tombstone(admin, name)
    until_erased(admin, tombstone(admin, name, erase=True))
    shown = admin.get(f"/v1/tombstones/{first['tombstone_id']}").json()
    assert (shown["entity"], shown["erased_at"] is not None) == (None, True)


def test_facts_of_others_that_name_it_are_hidden_before_they_are_destroyed(
    robin: httpx.Client, admin: httpx.Client
) -> None:
    name, other = new("Somebody"), new("Other")
    entity(robin, name)
    naming = fact(robin, other, new("says"), f"{name} is kind")
    plain = fact(robin, other, new("says"), "nothing of the kind")
    answer = admin.post("/v1/tombstones", json={"entity": name, "reason": "r"}).json()
    assert answer["hidden"] == {"facts": 1, "notes": 0, "objects": 0}
    assert ids(listed(robin, entity=other)) == [plain["fact_id"]]
    revoke(admin, answer["tombstone"])
    assert set(ids(listed(robin, entity=other))) == {naming["fact_id"], plain["fact_id"]}


def test_the_grace_period_cannot_be_cut_short(robin: httpx.Client, admin: httpx.Client) -> None:
    name = new("Patient")
    kept = fact(robin, name, new("p"), "x")
    answer = admin.post("/v1/tombstones", json={"entity": name, "reason": "r", "erase": True, "grace_seconds": 3600})
    job = answer.json()["job_id"]
    assert admin.post(f"/v1/jobs/{job}/cancel").status_code == 200
    assert admin.post(f"/v1/jobs/{job}/retry").status_code == 200
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        state = admin.get(f"/v1/jobs/{job}").json()
        if state["status"] == "pending" and state["available_at"] >= answer.json()["tombstone"]["erase_at"]:
            break
        time.sleep(0.05)
    assert (state["status"], state["attempts"]) == ("pending", 0)
    revoke(admin, answer.json()["tombstone"])
    assert read(robin, kept["fact_id"])


def test_notes_a_second_tombstone_would_not_hide_come_back_with_the_first(
    robin: httpx.Client, admin: httpx.Client
) -> None:
    name = new("Twice")
    entity(robin, name)
    told = note(robin, content=f"{name} was here")
    first = tombstone(admin, name)
    second = tombstone(admin, name, legal_hold=True, notes="linked")
    revoke(admin, first)
    assert robin.get(f"/v1/notes/{told}").status_code == 200
    revoke(admin, second)
    assert robin.get(f"/v1/notes/{told}").status_code == 200


def test_a_note_that_somebody_cites_for_a_hidden_entity_stays_what_it_was(
    robin: httpx.Client, admin: httpx.Client
) -> None:
    alice, bob = new("Alice"), new("Bob")
    told = note(robin, content=f"about {bob} and others")
    fact(robin, bob, new("p"), "x", evidence=[told])
    entity(robin, alice)
    tombstone(admin, alice)
    write(robin, alice, new("p"), "y", evidence=[told])
    revoke(admin, tombstone(admin, bob))
    assert robin.get(f"/v1/notes/{told}").status_code == 200


@pytest.mark.parametrize("form", ["{}", "{}\u0301tudes", "李明"])
def test_names_are_found_in_other_spellings(robin: httpx.Client, admin: httpx.Client, form: str) -> None:
    mark = new()
    name = f"{form.format('e')} {mark}" if form != "李明" else "李明"
    entity_answer = robin.post("/v1/entities", json={"canonical": name})
    assert entity_answer.status_code in (200, 201)
    told = note(robin, content=f"昨天{name}来了" if form == "李明" else f"we met {name.upper()}!")
    made = tombstone(admin, name)
    assert error(robin.get(f"/v1/notes/{told}")) == (404, "note_not_found")
    revoke(admin, made)


def test_administrators_without_the_scope_do_not_read_what_is_held(
    robin: httpx.Client, admin: httpx.Client, tenancy: Tenancy, as_key: Callable[..., httpx.Client]
) -> None:
    name = new("Held")
    kept = fact(robin, name, new("p"), "x")
    tombstone(admin, name, legal_hold=True)
    weak = as_key(tenancy.key("acme", kind="admin", scopes=["facts:read", "history:as_of"]), "default")
    assert listed(weak, entity=name, as_of=kept["created_at"]) == []


def test_an_ambiguous_name_that_shows_a_held_one_is_on_record(
    robin: httpx.Client, admin: httpx.Client, database: TestDatabase
) -> None:
    alias = new("alias")
    hidden, seen = entity(robin, aliases=[alias]), entity(robin, aliases=[alias])
    tombstone(admin, hidden["canonical"], legal_hold=True)
    moment = now(database)
    assert robin.get(f"/v1/entities/{alias}").json()["entity_id"] == seen["entity_id"]
    for path, params in ((f"/v1/entities/{alias}", {}), ("/v1/facts", {"entity": alias})):
        assert error(admin.get(path, params={**params, "as_of": moment})) == (409, "entity_ambiguous")
    deadline = time.monotonic() + 60
    found: list[Any] = []
    while len(found) < 2 and time.monotonic() < deadline:
        time.sleep(0.2)
        found = [
            event
            for event in events(admin, event_type="fact_read")
            if hidden["entity_id"] in event["details"].get("entity_ids", [])
        ]
    assert len(found) == 2


def test_a_hold_keeps_facts_of_others_that_name_it(robin: httpx.Client, admin: httpx.Client) -> None:
    alice, bob = new("Alice Quag"), new("Bob")
    entity(robin, alice)
    fact(robin, bob, new("p"), f"owes {alice} money")
    tombstone(admin, alice, legal_hold=True)
    refused = admin.post("/v1/tombstones", json={"entity": bob, "reason": "r", "erase": True})
    assert error(refused) == (409, "legal_hold_active")


def test_a_fact_that_is_held_for_what_it_names_is_told_with_its_hold(
    robin: httpx.Client, admin: httpx.Client, database: TestDatabase
) -> None:
    alice, bob = new("Alice Quag"), new("Bob")
    entity(robin, alice)
    naming = fact(robin, bob, new("p"), f"owes {alice} money")
    hold = tombstone(admin, alice, legal_hold=True)
    answer = admin.get(f"/v1/facts/{naming['fact_id']}", params={"as_of": now(database)}).json()
    assert [notice["tombstone_id"] for notice in answer["tombstone_notices"]] == [hold["tombstone_id"]]


def test_a_note_that_came_to_name_what_is_held_is_kept(robin: httpx.Client, admin: httpx.Client) -> None:
    alice, bob = new("Alice Quag"), new("Bob Quag")
    entity(robin, alice)
    entity(robin, bob)
    tombstone(admin, bob, legal_hold=True)
    note(robin, content=f"{alice} and {bob} met since")
    refused = admin.post("/v1/tombstones", json={"entity": alice, "reason": "r", "erase": True})
    assert error(refused) == (409, "legal_hold_active")


def test_a_conflict_of_others_that_it_decided_does_not_stop_an_erasure(
    robin: httpx.Client, admin: httpx.Client
) -> None:
    alice, bob, drinks = new("Alice"), new("Bob"), new("drinks")
    entity(robin, alice)
    for value in ("tea", "coffee"):
        fact(robin, bob, drinks, value)
    (conflict,) = robin.get("/v1/conflicts", params={"entity": bob}).json()["conflicts"]
    path = f"/v1/conflicts/{conflict['conflict_id']}"
    assert robin.post(f"{path}/resolve", json={"value": f"what {alice} drinks"}).status_code == 200
    until_erased(admin, tombstone(admin, alice, erase=True))
    assert robin.get(path).json()["winner"] is None


def test_values_written_while_hidden_contradict_after_the_end(robin: httpx.Client, admin: httpx.Client) -> None:
    name, phone = new("Ada"), new("phone")
    fact(robin, name, phone, "1")
    made = tombstone(admin, name)
    write(robin, name, phone, "2")
    revoke(admin, made)
    assert [item["contradicted"] for item in listed(robin, entity=name)] == [True, True]
    assert len(robin.get("/v1/conflicts", params={"entity": name}).json()["conflicts"]) == 1


@pytest.mark.parametrize("form", ["{}\n{} said", "{}  {} said", "{}\t{}", "{}\u00a0{} said", "さん{} {}さん"])
def test_names_are_found_whatever_stands_around_them(robin: httpx.Client, admin: httpx.Client, form: str) -> None:
    first, last = new("Alicea").split()
    entity(robin, f"{first} {last}")
    naming = fact(robin, new("Bob"), new("p"), form.format(first, last))
    tombstone(admin, f"{first} {last}")
    assert error(robin.get(f"/v1/facts/{naming['fact_id']}")) == (404, "fact_not_found")


def test_many_names_do_not_hold_up_forgetting(robin: httpx.Client, admin: httpx.Client) -> None:
    """More names than the database keeps compiled expressions: found all the same, in one look."""
    made = entity(robin, aliases=[new(f"alias {number}") for number in range(100)])
    told = [note(robin, content=f"about {alias}") for alias in made["aliases"][::10]]
    tombstone(admin, made["canonical"])
    assert [robin.get(f"/v1/notes/{found}").status_code for found in told] == [404] * 10


OUT_OF_STEP = """
    SELECT f.fact_id, f.suppression FROM graph_facts f
    JOIN graph_entities s ON s.tenant_id = f.tenant_id AND s.entity_id = f.subject_entity_id
    LEFT JOIN graph_entities o ON o.tenant_id = f.tenant_id AND o.entity_id = f.object_entity_id
    LEFT JOIN entity_edges x ON x.tenant_id = f.tenant_id AND x.edge_id = f.fact_id
    WHERE (f.suppression <> stricter_level(hidden_level(s.erased_scopes, s.held_scopes, f.scope),
                                           hidden_level(o.erased_scopes, o.held_scopes, f.scope))
           OR x.suppression <> f.suppression
           OR EXISTS (SELECT FROM fact_closings c WHERE c.fact_id = f.fact_id AND c.suppression <> f.suppression)
           OR EXISTS (SELECT FROM fact_retractions c WHERE c.fact_id = f.fact_id AND c.suppression <> f.suppression))
      AND NOT EXISTS (SELECT FROM graph_fact_mentions m WHERE m.fact_id = f.fact_id)"""


def test_two_at_once_on_both_ends_of_a_fact(robin: httpx.Client, admin: httpx.Client, database: TestDatabase) -> None:
    """Whatever order they meet in, what stands in the end follows from the tombstones that stand."""
    for _ in range(12):
        one, other = new("One"), new("Other")
        fact(robin, one, new("knows"), {"entity": other})
        first = tombstone(admin, one)
        with ThreadPoolExecutor(2) as pool:
            revoking = pool.submit(revoke, admin, first)
            issuing = pool.submit(tombstone, admin, other)
            revoking.result()
            second = issuing.result()
        assert listed(robin, entity=one) == []
        third = tombstone(admin, one)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda made: revoke(admin, made), (second, third)))
        assert len(listed(robin, entity=one)) == 1
    with psycopg.connect(database.superuser) as connection:
        assert connection.execute(OUT_OF_STEP.encode()).fetchall() == []


@pytest.mark.slow
def test_writers_who_meet_tombstones_and_erasures(
    tenancy: Tenancy, as_key: Callable[..., httpx.Client], admin: httpx.Client, database: TestDatabase
) -> None:
    """Writes, retractions, ends and aliases beside tombstones, revocations and erasures: no 5xx, all in step."""
    agents = [as_key(tenancy.key("acme", agent_id=f"agent-{n}", rate_limits=UNLIMITED)) for n in range(4)]
    names = [new("Busy") for _ in range(4)]
    knows = predicate(agents[0], cardinality="single")["name"]
    stopping, bad = threading.Event(), []

    def check(answer: httpx.Response) -> httpx.Response:
        if answer.status_code >= 500:
            bad.append((answer.request.method, answer.request.url.path, answer.text))
        return answer

    def agent(number: int) -> None:
        client, turn = agents[number], 0
        while not stopping.is_set():
            turn += 1
            subject, target = names[(turn + number) % 4], names[turn % 3]
            said = note(client, content=f"{subject} {turn} {number}")
            answer = check(client.post("/v1/facts", json=body(subject, knows, {"entity": target}, evidence=[said])))
            check(client.post("/v1/facts/batch", json={"facts": [body(subject, new("p"), f"v {turn}")]}))
            if answer.status_code == 201:
                made = answer.json()["fact"]
                check(client.patch(f"/v1/facts/{made['fact_id']}", json={"valid_to": year(2070)}))
                check(client.post(f"/v1/facts/{made['fact_id']}/retract", json={}))
                entity_id = made["subject"]["entity_id"]
                check(client.post(f"/v1/entities/{entity_id}/aliases", json={"alias": f"alias {turn} {number}"}))

    def custodian() -> None:
        turn = 0
        while not stopping.is_set():
            turn += 1
            sent = {"entity": names[turn % 4], "reason": "r", "erase": turn % 3 == 0, "legal_hold": turn % 5 == 1}
            if sent["legal_hold"]:
                sent["erase"] = False
            answer = check(admin.post("/v1/tombstones", json=sent))
            if answer.status_code == 201 and not sent["erase"]:
                path = f"/v1/tombstones/{answer.json()['tombstone']['tombstone_id']}/revoke"
                check(admin.post(path, json={"reason": "r"}))

    threads = [threading.Thread(target=agent, args=(number,)) for number in range(4)]
    threads.append(threading.Thread(target=custodian))
    for thread in threads:
        thread.start()
    time.sleep(sized(4, 12))
    stopping.set()
    for thread in threads:
        thread.join(60)
    assert bad == []
    with psycopg.connect(database.superuser) as connection:
        assert connection.execute(OUT_OF_STEP.encode()).fetchall() == []


def test_administrators_read_held_objects_at_a_past_time_and_it_is_on_record(
    robin: httpx.Client, admin: httpx.Client, database: TestDatabase
) -> None:
    name = new("Held")
    entity(robin, name)

    def post(path: str, **fields: Any) -> dict[str, Any]:
        answer = robin.post(path, json=fields)
        assert answer.status_code == 201, answer.text
        return next(value for value in answer.json().values() if isinstance(value, dict) and "canonical_id" in value)

    about = post("/v1/graph/objects", type="Decision", title=f"about {name}", properties={"x": 1})["canonical_id"]
    other = post("/v1/graph/objects", type="Decision", title=new("other"), properties={"x": 2})["canonical_id"]
    edge = post("/v1/graph/relationships", type="decides", src_id=other, dst_id=about)["canonical_id"]
    hold = tombstone(admin, name, legal_hold=True)
    then = {"as_of": now(database)}
    paths = {"object_ids": f"/v1/graph/objects/{about}", "relationship_ids": f"/v1/graph/relationships/{edge}"}
    for path in paths.values():
        assert robin.get(path, params=then).status_code == admin.get(path).status_code == 404
        assert admin.get(path, params=then).status_code == 200
    listed_objects = admin.get("/v1/graph/objects", params={**then, "type": "Decision", "limit": 200}).json()["objects"]
    assert about in {item["canonical_id"] for item in listed_objects}
    seen = robin.get("/v1/graph/objects", params={**then, "type": "Decision", "limit": 200}).json()["objects"]
    assert about not in {item["canonical_id"] for item in seen}
    deadline = time.monotonic() + 60
    found: list[dict[str, Any]] = []
    while len(found) < 3 and time.monotonic() < deadline:
        found = [
            event["details"]
            for event in events(admin, event_type="fact_read")
            if hold["tombstone_id"] in event["details"]["tombstone_ids"]
        ]
        time.sleep(0.1)
    assert [event["object_ids"] for event in found if "object_ids" in event] == [[about], [about]]
    assert [event["relationship_ids"] for event in found if "relationship_ids" in event] == [[edge]]
    revoke(admin, hold)
