"""The audit log: every administrative action and write, ids only, sealed into a chain that shows tampering."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests.conftest import Tenancy, TestDatabase
from tests.erasure.shared import events, revoke, tombstone
from tests.facts.shared import body, entity, error, fact, new, note, year
from tests.service import palimpsest

pytestmark = pytest.mark.usefixtures("worker")


def wait_sealed(database: TestDatabase, *, seconds: float = 60, nudge: bool = True) -> None:
    """Return once the worker has sealed all lines; it is asked to begin now unless its own schedule is tested."""
    deadline = time.monotonic() + seconds
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        while time.monotonic() < deadline:
            if connection.execute("SELECT count(*) FROM audit_log WHERE sequence IS NULL").fetchone() == (0,):
                return
            if nudge:
                connection.execute("SELECT * FROM schedule_seals()")
            time.sleep(0.05)
    raise AssertionError("not sealed")


def after(database: TestDatabase, admin: httpx.Client, known: int) -> list[dict[str, Any]]:
    wait_sealed(database)
    return events(admin, after=str(known))


@pytest.fixture
def known(database: TestDatabase, admin: httpx.Client) -> int:
    """The number of the last line there is."""
    wait_sealed(database)
    return max((event["sequence"] for event in events(admin)), default=0)


def kinds(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["event_type"], event["details"].get("action", "")) for event in found]


def test_each_act_writes_its_line(robin: httpx.Client, admin: httpx.Client, database: TestDatabase, known: int) -> None:
    name, other, predicate = new("Person"), new("Other"), new("p")
    one = fact(robin, name, predicate, "a value", source="somebody")
    robin.post("/v1/facts/batch", json={"facts": [body(name, predicate, f"v {i}") for i in range(3)]})
    robin.patch(f"/v1/facts/{one['fact_id']}", json={"valid_to": year(2050)})
    robin.post(f"/v1/facts/{one['fact_id']}/retract", json={"reason": "wrong"})
    robin.post("/v1/facts/retract", json={"subject": name, "predicate": predicate})
    into, source = entity(robin, other), entity(robin)
    robin.post(f"/v1/entities/{source['entity_id']}/merge", json={"into": into["entity_id"]})
    issued = admin.post("/v1/admin/keys", json={"agent_id": "kestrel", "project_id": "default"}).json()
    admin.post(f"/v1/admin/keys/{issued['key_id']}/rotate", json={})
    admin.delete(f"/v1/admin/keys/{issued['key_id']}")
    admin.patch("/v1/admin/projects/default", json={"trust_mode": "off"})
    hold = tombstone(admin, name, legal_hold=True)
    held = admin.get("/v1/facts", params={"entity": name, "as_of": one["created_at"]})
    assert held.json()["tombstone_notices"]
    revoke(admin, hold)
    wait_sealed(database, nudge=False)
    found = after(database, admin, known)
    assert kinds(found) == [
        ("fact_write", "assert"),
        ("fact_write", "assert"),
        ("fact_write", "end"),
        ("fact_write", "retract"),
        ("fact_write", "retract"),
        ("admin_action", "entity_merge"),
        ("key_issue", ""),
        ("key_rotation", ""),
        ("key_revoke", ""),
        ("admin_action", "project_change"),
        ("tombstone_issued", ""),
        ("rtbf_legal_hold_issued", ""),
        ("fact_read", ""),
        ("tombstone_revoked", ""),
    ]
    assert found[0]["details"] == {
        "action": "assert",
        "created": 1,
        "reused": 0,
        "fact_ids": [one["fact_id"]],
        "predicates_created": [one["predicate"]["predicate_id"]],
    }
    assert found[1]["details"]["created"] == 3
    assert found[12]["details"]["fact_ids"] == [one["fact_id"]]
    said = json.dumps(found).lower()
    for word in (name, other, predicate, "a value", "somebody", "wrong", "they asked", "a mistake"):
        assert word.lower() not in said, "ids only"
    assert [event["sequence"] for event in found] == list(range(known + 1, known + 15))


def test_forgetting_gardens_and_jobs_write_lines_without_content(
    robin: httpx.Client, admin: httpx.Client, database: TestDatabase, known: int
) -> None:
    secret = f"secret{uuid4().hex}"
    made = robin.post("/v1/notes", json={"content": f"It is {secret}."}).json()["note"]["note_id"]
    assert robin.delete(f"/v1/notes/{made}", params={"reason": secret}).status_code == 204
    assert robin.post(f"/v1/notes/{made}/recover", json={"reason": secret}).status_code == 200
    forget = {"filter": {"author": secret}, "reason": secret}
    assert robin.post("/v1/notes/forget", json=forget).status_code == 200
    garden = robin.post("/v1/gardens", json={"slug": f"g-{uuid4().hex[:8]}", "name": secret}).json()["garden"]
    members = f"/v1/gardens/{garden['garden_id']}/members"
    assert robin.put(f"{members}/wren", json={"role": "reader"}).status_code == 201
    assert robin.delete(f"{members}/wren").status_code == 204
    document = robin.post("/v1/documents", json={"content": secret}).json()["document"]
    job = str(uuid4())
    with psycopg.connect(database.superuser) as connection:
        # Due only later, so that no worker takes it.
        connection.execute(
            "INSERT INTO jobs (tenant_id, job_id, project_id, kind, payload, created_by, available_at, created_at) "
            "VALUES ('acme', %s, 'default', 'recount', '{}', 'test', now() + interval '1 day', now())",
            [job],
        )
    assert admin.post(f"/v1/jobs/{job}/cancel").status_code == 200
    assert admin.post(f"/v1/jobs/{job}/retry").status_code == 200
    path = f"/v1/documents/{document['document_id']}"
    assert robin.delete(path, params={"reason": secret}).status_code == 204
    found = after(database, admin, known)
    assert kinds(found) == [
        ("note_write", "delete"), ("note_write", "recover"), ("note_write", "forget"),
        ("garden_write", "create"), ("garden_write", "set_member"), ("garden_write", "remove_member"),
        ("job_control", "cancel"), ("job_control", "retry"), ("document_write", "delete"),
    ]  # fmt: skip
    assert secret not in str(found)
    assert found[0]["details"]["note_ids"] == [made]
    assert (found[4]["details"]["member"], found[4]["details"]["role"]) == ("wren", "reader")
    assert found[6]["details"]["job_id"] == job


def test_refused_writes_and_reads_leave_no_line(
    robin: httpx.Client, admin: httpx.Client, database: TestDatabase, known: int
) -> None:
    assert robin.post("/v1/facts", json={"subject": "x"}).status_code == 400
    bad = [body(new(), new(), "x"), body(new(), new(), "y", evidence=["018f0000-0000-7000-8000-000000000000"])]
    assert robin.post("/v1/facts/batch", json={"facts": bad}).status_code == 404
    assert robin.get("/v1/facts", params={"as_of": "2026-01-01T00:00:00Z"}).status_code == 200
    assert after(database, admin, known) == []


def test_a_breach_of_the_limit_is_told_once_a_minute(
    tenancy: Tenancy, as_key: Any, admin: httpx.Client, database: TestDatabase, known: int
) -> None:
    greedy = as_key(tenancy.key("acme", agent_id="magpie", rate_limits={"read": 3}))
    known = max(event["sequence"] for event in after(database, admin, known - 1))
    statuses = [greedy.get("/v1/notes").status_code for _ in range(12)]
    assert 429 in statuses
    found = after(database, admin, known)
    assert [(event["event_type"], event["details"]) for event in found] == [
        ("quota_breach", {"work": "read", "limit": 3})
    ]


def test_lines_are_sealed_within_five_seconds(robin: httpx.Client, database: TestDatabase, known: int) -> None:
    for _ in range(20):
        fact(robin, new(), new(), "x")
    wait_sealed(database)
    with psycopg.connect(database.superuser) as connection:
        row = connection.execute(
            "SELECT count(*), max(sealed_at - created_at) < interval '5 seconds' FROM audit_log "
            "WHERE tenant_id = 'acme' AND sequence > %s",
            (known,),
        ).fetchone()
    assert row == (20, True)


def test_pages_and_filters(robin: httpx.Client, admin: httpx.Client, database: TestDatabase, known: int) -> None:
    made = [fact(robin, new(), new(), "x") for _ in range(5)]
    wait_sealed(database)
    answer = admin.get("/v1/admin/audit-log", params={"after": str(known), "limit": 2}).json()
    assert len(answer["events"]) == 2
    assert answer["next_cursor"]
    assert len(events(admin, after=str(known), limit=2)) == 5
    since = events(admin, after=made[2]["created_at"])
    assert [event["details"]["fact_ids"][0] for event in since] == [item["fact_id"] for item in made[3:]]
    until = events(admin, after=str(known), before=made[2]["created_at"])
    assert [event["details"]["fact_ids"][0] for event in until] == [item["fact_id"] for item in made[:2]]
    assert events(admin, after=str(known), event_type="key_issue") == []
    assert error(admin.get("/v1/admin/audit-log", params={"limit": 5001}))[0] == 400
    assert error(admin.get("/v1/admin/audit-log", params={"after": "yesterday"}))[0] == 400
    assert error(robin.get("/v1/admin/audit-log")) == (403, "wrong_key_kind")


def test_a_key_bound_to_a_project_reads_its_project_alone(
    tenancy: Tenancy, as_key: Any, elsewhere: httpx.Client, robin: httpx.Client, database: TestDatabase
) -> None:
    fact(elsewhere, new(), new(), "x")
    fact(robin, new(), new(), "x")
    wait_sealed(database)
    bound = as_key(tenancy.key("acme", kind="admin", project_id="other"))
    assert {event["project_id"] for event in events(bound)} == {"other"}


def test_nobody_waits_for_the_audit_log(robin: httpx.Client, database: TestDatabase) -> None:
    """While one writer's transaction is open, and while somebody seals, another writer goes on."""
    with psycopg.connect(database.app) as slow, psycopg.connect(database.superuser) as sealing:
        slow.execute("SELECT set_scope('acme', 'default', 'robin', NULL, '')")
        slow.execute("SELECT record_event('fact_write', 'x', '{}')")
        sealing.execute("SELECT * FROM audit_chains WHERE tenant_id = 'acme' FOR UPDATE")
        started = time.monotonic()
        threads = [threading.Thread(target=fact, args=(robin, new(), new(), "x")) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in threads)
        assert time.monotonic() - started < 5
        slow.rollback()
        sealing.rollback()


@pytest.fixture
def chain(fresh_database: TestDatabase) -> Iterator[psycopg.Connection[Any]]:
    """A sealed chain of ten lines in a database of its own."""
    tenancy = Tenancy(fresh_database)
    tenancy.tenant("solo")
    connection = psycopg.connect(fresh_database.superuser, autocommit=True)
    connection.execute("SELECT set_config('app.tenant_id', 'solo', false)")
    for number in range(8):
        connection.execute(
            "SELECT record_event('admin_action', 'k', jsonb_build_object('number', %s::int, 'word', %s::text))",
            (number, 'a "quoted" wörd\n'),
        )
    connection.execute("SELECT * FROM seal_audit(1000)")
    yield connection
    connection.close()


def verify(database: TestDatabase, *arguments: str) -> tuple[int, str]:
    ended = palimpsest("audit", "verify", "--tenant", "solo", *arguments, DATABASE_URL=database.url("app"))
    return ended.returncode, ended.stdout + ended.stderr


TAMPERED = [
    ("UPDATE audit_log SET details = '{}' WHERE sequence = 4", "line 4 was altered"),
    ("UPDATE audit_log SET agent_id = 'other' WHERE sequence = 1", "line 1 was altered"),
    ("UPDATE audit_log SET created_at = created_at + interval '1 us' WHERE sequence = 9", "line 9 was altered"),
    ("DELETE FROM audit_log WHERE sequence = 5", "line 5 is missing"),
    ("DELETE FROM audit_log WHERE sequence = 1", "line 1 is missing"),
    ("DELETE FROM audit_log WHERE sequence > 7", "line 8 is missing (to 10)"),
    ("DELETE FROM audit_log", "line 1 is missing (to 10)"),
    (
        "UPDATE audit_log SET sequence = sequence + 100 WHERE sequence IN (3, 4); "
        "UPDATE audit_log SET sequence = 107 - sequence WHERE sequence IN (103, 104)",
        "line 3 was altered",
    ),
    (
        "INSERT INTO audit_log SELECT tenant_id, gen_random_uuid(), project_id, event_type, key_id, agent_id, details, "
        "created_at, 11, hash, hash, sealed_at FROM audit_log WHERE sequence = 10",
        "line 11 was altered",
    ),
    (
        "UPDATE audit_log SET details = '{}', hash = sha256('x') WHERE sequence = 6",
        "line 7 does not follow the one before it",
    ),
]


def test_an_intact_chain_is_told_so(fresh_database: TestDatabase, chain: psycopg.Connection[Any]) -> None:
    code, said = verify(fresh_database)
    assert code == 0
    assert "solo: intact, 10 lines" in said


@pytest.mark.parametrize(("statement", "told"), TAMPERED, ids=[told for _, told in TAMPERED])
def test_what_was_done_to_the_chain_is_found(
    fresh_database: TestDatabase, chain: psycopg.Connection[Any], statement: str, told: str
) -> None:
    chain.execute(statement.encode())
    code, said = verify(fresh_database)
    assert code == 1
    assert "BROKEN" in said
    assert told in said


def test_a_chain_that_was_written_anew_is_found_by_a_head_that_was_kept(
    fresh_database: TestDatabase, chain: psycopg.Connection[Any]
) -> None:
    head = verify(fresh_database)[1].split("head ")[1].split()[0]
    assert verify(fresh_database, "--head", head)[0] == 0
    chain.execute("DELETE FROM audit_log WHERE sequence = 3")
    chain.execute("UPDATE audit_log SET sequence = NULL, hash = NULL, previous_hash = NULL")
    chain.execute("DELETE FROM audit_chains")
    chain.execute("SELECT * FROM seal_audit(1000)")
    assert verify(fresh_database)[0] == 0, "without anything kept outside, a perfect forgery looks genuine"
    code, said = verify(fresh_database, "--head", head)
    assert code == 1
    assert "line 10 is gone" in said


@pytest.mark.parametrize("head", ["x", "3", "3:abc", f"{'9' * 30}:{'0' * 64}"])
def test_a_head_that_is_none_is_refused(fresh_database: TestDatabase, head: str) -> None:
    code, said = verify(fresh_database, "--head", head)
    assert code == 2
    assert "--head" in said


def test_the_service_itself_cannot_change_what_is_written(database: TestDatabase, robin: httpx.Client) -> None:
    note(robin)
    for statement in (
        "INSERT INTO audit_log SELECT * FROM audit_log LIMIT 1",
        "UPDATE audit_log SET details = '{}'",
        "DELETE FROM audit_log",
        "UPDATE audit_chains SET sequence = 0",
        "DELETE FROM tombstones",
        "DELETE FROM erasure_receipts",
    ):
        with psycopg.connect(database.app) as connection:
            connection.execute("SELECT set_scope('acme', 'default', 'robin', NULL, 'legal_hold')")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())
