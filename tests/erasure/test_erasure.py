"""Erasure: nothing of an entity is left in any table, the receipt proves it, and a legal hold forbids it."""

import base64
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import msgspec
import psycopg
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from psycopg.rows import dict_row

from app.db.embedded_programs import find_programs
from tests.conftest import TestDatabase
from tests.erasure.shared import end_grace, events, revoke, tombstone, until_erased
from tests.facts.shared import error, fact, ids, listed, new, note, predicate, read, year
from tests.objects.entity_links.shared import Objects


def dump(database: TestDatabase) -> str:
    """Everything the database holds, as text; bytes are shown as what they spell."""
    made = subprocess.run(
        [str(find_programs() / "pg_dump"), "--dbname", database.superuser, "--data-only", "--inserts"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    with psycopg.connect(database.superuser) as connection:
        bodies = connection.execute("SELECT encode(body, 'escape') FROM idempotency_keys WHERE NOT sealed").fetchall()
    return made.lower() + "\n".join(body or "" for (body,) in bodies).lower()


class Planted:
    """An entity of whom markers stand in every corner there is."""

    def __init__(self, robin: httpx.Client, admin: httpx.Client, database: TestDatabase) -> None:
        self.mark = uuid4().hex[:10]
        self.name = f"Zebulon {self.mark}"
        self.alias = f"Zeb-{self.mark}-alias"
        self.twin = f"Doctor {self.mark} Twin"
        self.values = [f"secret value {self.mark} {number}" for number in range(6)]
        self.markers = [self.name, self.alias, self.twin, self.mark, *self.values]
        self.robin, self.admin, self.database = robin, admin, database
        self.bystander = new("bystander")
        self._plant()

    def _plant(self) -> None:
        robin, admin = self.robin, self.admin
        post = lambda path, body, **headers: robin.post(path, json=body, headers=headers)  # noqa: E731
        made = post("/v1/entities", {"canonical": self.name, "kind": "person", "aliases": [self.alias]})
        self.entity_id = made.json()["entity"]["entity_id"]
        twin = post("/v1/entities", {"canonical": self.twin}).json()["entity"]["entity_id"]
        assert post(f"/v1/entities/{twin}/merge", {"into": self.entity_id}).status_code == 200
        told = note(robin, content=f"{self.name} told me {self.values[0]}", author=self.name, tags=[self.mark])
        self.notes = [
            told,
            note(robin, content=f"what {self.alias.upper()} said", thread_id="a thread"),
            note(robin, content=f"by author {uuid4().hex}", author=self.name),
            note(robin, content=f"in a thread {uuid4().hex}", thread_id=self.name),
        ]
        changed = note(robin, content=f"once this said {self.name}, privately", scope="agent_private")
        robin.patch(f"/v1/notes/{changed}", json={"content": f"now it is silent {uuid4().hex}", "reason": "tact"})
        self.notes.append(changed)
        deleted = note(robin, content=f"{self.name} deleted {self.values[1]}")
        robin.request("DELETE", f"/v1/notes/{deleted}", params={"reason": f"{self.name} asked"})
        single = predicate(robin, cardinality="single")["name"]
        self.facts = [
            fact(robin, self.name, single, self.values[0], evidence=[told], source=f"user {self.name}"),
            fact(robin, self.name, single, self.values[1]),
            fact(robin, self.alias, new("p"), self.values[2], scope="agent_private"),
            fact(robin, self.bystander, new("knows"), {"entity": self.name}),
            fact(robin, self.bystander, new("says"), f"{self.name} is kind"),
        ]
        undecided = new("undecided")
        for value in self.values[3:5]:
            self.facts.append(fact(robin, self.name, undecided, value))
        (conflict,) = robin.get("/v1/conflicts", params={"entity": self.name}).json()["conflicts"]
        body = {"winner": conflict["fact_a"], "note": f"as {self.name} says"}
        assert post(f"/v1/conflicts/{conflict['conflict_id']}/resolve", body).status_code == 200
        taken = fact(robin, self.bystander, new("p"), "anything")
        post(f"/v1/facts/{taken['fact_id']}/retract", {"reason": f"{self.name} denies it"})
        stored = {"subject": self.name, "predicate": new("p"), "object": {"value": self.values[5]}}
        assert post("/v1/facts", stored, **{"Idempotency-Key": self.mark[:8]}).status_code == 201
        admin.put("/v1/sources", json={"source": f"user {self.name}", "identity": "manifest"})
        first = tombstone(admin, self.name, reason=f"{self.name} asked once")
        revoke(admin, first)
        with psycopg.connect(self.database.superuser, autocommit=True) as connection:
            connection.execute(
                "INSERT INTO jobs (tenant_id, job_id, project_id, kind, payload, created_by, available_at, created_at, "
                "status, last_error, finished_at) VALUES ('acme', gen_random_uuid(), 'default', 'extract', %s, 'x', "
                "now(), now(), 'dead', %s, now())",
                (f'{{"text": "{self.values[0]}"}}', f"cannot make sense of {self.name}"),
            )
        self.objects = self._plant_objects()
        # What has nothing to do with it.
        self.kept_note = note(robin, content=f"nothing to see here {uuid4().hex}")
        chain = predicate(robin, cardinality="single")["name"]
        self.kept = [
            fact(robin, self.bystander, chain, "first", valid_from=year(2020)),
            fact(robin, self.bystander, chain, "second", valid_from=year(2021), evidence=[told]),
        ]

    def _plant_objects(self) -> list[str]:
        """One that stands for it, one that once named it, and what lies between them and a third."""
        kind = psycopg.Connection[dict[str, Any]]
        with kind.connect(self.database.superuser, autocommit=True, row_factory=dict_row) as connection:
            write = Objects(connection)
            bound = write.put("the one", key=self.mark, properties={"secret": self.values[0]}, status=self.alias)
            write.bind(self.entity_id, bound)
            named = write.put("another", properties={"told": [self.twin]}, evidence={"by": self.name})
            write.change(named, properties={}, evidence=None)
            self.kept_object = write.put("a third")
            edges = [
                write.relate(bound, self.kept_object, properties={"as": self.values[1]}),
                write.relate(self.kept_object, named),
            ]
        return [bound, named, *edges]


@pytest.fixture
def planted(robin: httpx.Client, admin: httpx.Client, database: TestDatabase, worker: None) -> Planted:
    return Planted(robin, admin, database)


def verified(receipt: dict[str, Any], public_key: str) -> dict[str, Any]:
    """The receipt, once its signature holds against the published key."""
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key))
    key.verify(base64.b64decode(receipt["signature"]), receipt["signed"].encode())
    assert msgspec.json.decode(receipt["signed"]) == receipt["receipt"]
    return receipt["receipt"]


def test_after_erasure_nothing_is_left_in_the_whole_database(
    planted: Planted, robin: httpx.Client, admin: httpx.Client, client: httpx.Client, database: TestDatabase
) -> None:
    before = dump(database)
    for marker in planted.markers:
        assert marker.lower() in before, "or the scan proves nothing"
    made = tombstone(admin, planted.name, reason=f"{planted.name} asked again", erase=True)
    receipt = until_erased(admin, made)
    after = dump(database)
    for marker in planted.markers:
        assert marker.lower() not in after, marker
    for row in [*planted.notes, *ids(planted.facts), *planted.objects]:
        assert row not in after.replace(made["entity_id"], "") or row in _audited(after), row

    proved = verified(receipt, client.get("/.well-known/palimpsest").json()["signing"]["public_key"])
    assert proved["tombstone_id"] == made["tombstone_id"]
    assert proved["entity_id"] == planted.entity_id
    assert proved["destroyed"]["graph_facts"] >= 8
    assert proved["destroyed"]["memory_notes"] == 6
    assert proved["destroyed"]["graph_entities"] == 2
    assert proved["destroyed"]["graph_objects"] == proved["destroyed"]["graph_relationships"] == 2
    assert proved["destroyed"]["graph_object_versions"] == 3
    assert planted.kept_object in after
    assert proved["names_left"] == []
    assert proved["columns_checked"] > 150
    assert "Backups" in proved["outside"]

    shown = admin.get(f"/v1/tombstones/{made['tombstone_id']}").json()
    assert (shown["entity"], shown["reason"]) == (None, "")
    assert shown["erased_at"] is not None
    # What was none of its business is as it was, but for the note that is gone.
    assert robin.get(f"/v1/notes/{planted.kept_note}").status_code == 200
    first, second = (read(robin, item["fact_id"]) for item in planted.kept)
    assert (first["valid_to"], second["evidence"]) == (year(2021), [])
    links = robin.get(f"/v1/facts/{second['fact_id']}/history").json()["supersessions"]
    assert [(link["from_fact_id"], link["note_id"]) for link in links] == [(first["fact_id"], None)]


def _audited(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if "audit_log" in line)


def test_a_forged_receipt_does_not_verify(planted: Planted, admin: httpx.Client, client: httpx.Client) -> None:
    receipt = until_erased(admin, tombstone(admin, planted.name, erase=True))
    key = client.get("/.well-known/palimpsest").json()["signing"]["public_key"]
    forged = {**receipt, "signed": receipt["signed"].replace('"memory_notes":6', '"memory_notes":7')}
    assert forged["signed"] != receipt["signed"]
    with pytest.raises(InvalidSignature):
        verified(forged, key)


def test_the_name_is_free_again_and_belongs_to_somebody_new(
    planted: Planted, robin: httpx.Client, admin: httpx.Client
) -> None:
    until_erased(admin, tombstone(admin, planted.name, erase=True))
    again = fact(robin, planted.name, new("p"), "a fresh start")
    assert again["subject"]["entity_id"] != planted.entity_id
    assert ids(listed(robin, entity=planted.name)) == [again["fact_id"]]


def test_a_stored_answer_shows_nothing_of_what_is_hidden(
    planted: Planted, robin: httpx.Client, admin: httpx.Client, superuser: psycopg.Connection[Any]
) -> None:
    made = {"subject": planted.name, "predicate": new("p"), "object": {"value": "x"}}
    key = {"Idempotency-Key": f"again-{planted.mark[:6]}"}
    first = robin.post("/v1/facts", json=made, headers=key).json()["fact"]
    hidden = tombstone(admin, planted.name, erase=True, grace_seconds=3600)
    again = robin.post("/v1/facts", json=made, headers=key)
    assert again.status_code == 201
    assert first["fact_id"] not in again.text
    assert planted.entity_id not in again.text
    end_grace(superuser, hidden)
    until_erased(admin, hidden)
    assert listed(robin, entity=planted.name) == []


def test_a_hold_forbids_erasure_and_its_end_lets_it_go_on(
    planted: Planted, robin: httpx.Client, admin: httpx.Client, superuser: psycopg.Connection[Any]
) -> None:
    hold = tombstone(admin, planted.name, legal_hold=True)
    refused = admin.post("/v1/tombstones", json={"entity": planted.name, "reason": "rtbf", "erase": True})
    assert error(refused) == (409, "legal_hold_active")
    assert refused.json()["error"]["details"] == {"tombstone_id": hold["tombstone_id"]}
    revoke(admin, hold)

    waiting = tombstone(admin, planted.name, erase=True, grace_seconds=3600)
    hold = tombstone(admin, planted.name, legal_hold=True)
    end_grace(superuser, waiting)
    deadline = time.monotonic() + 60
    while not (blocked := _erasures(admin, waiting, "failed")) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert "legal_hold" in blocked[0]["last_error"]
    assert error(admin.get(f"/v1/tombstones/{waiting['tombstone_id']}/receipt")) == (404, "receipt_not_found")
    revoke(admin, hold)
    assert until_erased(admin, waiting)["receipt"]["destroyed"]["graph_facts"] >= 8


def _erasures(admin: httpx.Client, made: dict[str, Any], status: str) -> list[dict[str, Any]]:
    jobs = admin.get("/v1/jobs", params={"kind": "erase", "status": status, "limit": 200}).json()["jobs"]
    return [job for job in jobs if job["created_at"] >= made["created_at"]]


def test_a_hold_on_the_other_end_of_a_fact_forbids_it_too(
    planted: Planted, robin: httpx.Client, admin: httpx.Client
) -> None:
    hold = tombstone(admin, planted.bystander, legal_hold=True)
    refused = admin.post("/v1/tombstones", json={"entity": planted.name, "reason": "rtbf", "erase": True})
    assert error(refused) == (409, "legal_hold_active")
    revoke(admin, hold)


def test_until_the_grace_is_over_it_can_be_revoked(planted: Planted, robin: httpx.Client, admin: httpx.Client) -> None:
    seen = {item["fact_id"] for item in listed(robin, entity=planted.name, include_inactive=True)}
    made = tombstone(admin, planted.name, erase=True, grace_seconds=3600)
    assert listed(robin, entity=planted.name) == []
    revoke(admin, made)
    assert {item["fact_id"] for item in listed(robin, entity=planted.name, include_inactive=True)} == seen
    assert _erasures(admin, made, "cancelled")


def test_what_is_erased_cannot_be_revoked(planted: Planted, admin: httpx.Client) -> None:
    made = tombstone(admin, planted.name, erase=True)
    until_erased(admin, made)
    again = admin.post(f"/v1/tombstones/{made['tombstone_id']}/revoke", json={"reason": "too late"})
    assert error(again) == (409, "tombstone_erased")


def test_what_was_written_while_it_was_hidden_goes_with_it(
    planted: Planted,
    robin: httpx.Client,
    admin: httpx.Client,
    database: TestDatabase,
    superuser: psycopg.Connection[Any],
) -> None:
    made = tombstone(admin, planted.name, erase=True, grace_seconds=3600)
    late = f"late marker {uuid4().hex}"
    fact(robin, planted.name, new("p"), late)
    note(robin, content=f"{late}: {planted.name} called again")
    end_grace(superuser, made)
    until_erased(admin, made)
    assert late not in dump(database)


def test_erasing_one_scope_leaves_the_others(robin: httpx.Client, admin: httpx.Client, worker: None) -> None:
    name = new("partly")
    private = fact(robin, name, new("p"), "mine", scope="agent_private")
    shared = fact(robin, name, new("p"), "ours")
    made = tombstone(admin, name, scope="agent_private", erase=True)
    assert until_erased(admin, made)["receipt"]["scope"] == ["agent_private"]
    assert ids(listed(robin, entity=name)) == [shared["fact_id"]]
    assert error(robin.get(f"/v1/facts/{private['fact_id']}")) == (404, "fact_not_found")


def test_texts_of_mentions_are_destroyed(
    robin: httpx.Client, admin: httpx.Client, superuser: psycopg.Connection[Any], worker: None
) -> None:
    name = new("Zoltan")
    company = f"{name.upper()} Limited"
    told, changed = note(robin, content=f"{name} works here"), note(robin, content=f"{company} pays well")
    fact(robin, name, new("p"), "x", evidence=[told])
    named = fact(robin, f"{name} Limited", new("p"), "x", evidence=[changed])["subject"]["entity_id"]
    texts = "SELECT mention FROM note_entity_mentions WHERE note_id = ANY (%s) ORDER BY note_id"
    assert [row["mention"] for row in superuser.execute(texts, ([told, changed],))] == [name, company]
    # Neither the note nor its history names it any more.
    assert robin.patch(f"/v1/notes/{changed}", json={"content": new("silent"), "reason": "tact"}).status_code == 200
    superuser.execute("DELETE FROM memory_history WHERE note_id = %s", (changed,))
    receipt = until_erased(admin, tombstone(admin, name, erase=True))["receipt"]
    assert (receipt["destroyed"]["mention_texts"], receipt["destroyed"]["note_entity_mentions"]) == (1, 1)
    assert superuser.execute(texts, ([told, changed],)).fetchall() == [{"mention": None}]
    assert [item["entity_id"] for item in robin.get(f"/v1/notes/{changed}").json()["mentions"]] == [named]


def test_notes_that_only_name_it_can_be_kept(robin: httpx.Client, admin: httpx.Client, worker: None) -> None:
    name = new("Common Name")
    kept, linked = note(robin, content=f"{name} is a common name"), note(robin, content=f"{name}, that one")
    fact(robin, name, new("p"), "x", evidence=[linked])
    until_erased(admin, tombstone(admin, name, erase=True, notes="linked"))
    assert robin.get(f"/v1/notes/{kept}").status_code == 200
    assert error(robin.get(f"/v1/notes/{linked}")) == (404, "note_not_found")


def test_names_that_stand_in_other_names_are_told(robin: httpx.Client, admin: httpx.Client, worker: None) -> None:
    name = new("Gulliver")
    fact(robin, f"{name} Street", new("p"), "a street")
    fact(robin, name, new("p"), "a person")
    left = until_erased(admin, tombstone(admin, name, erase=True))["receipt"]["names_left"]
    assert {(entry["table"], entry["column"]) for entry in left} == {
        ("graph_entities", "canonical"),
        ("graph_entities", "canonical_norm"),
    }


def test_what_a_field_is_called_is_not_what_is_said(robin: httpx.Client, admin: httpx.Client, worker: None) -> None:
    made = {"subject": new("Other"), "predicate": new("p"), "object": {"value": "x"}}
    key = {"Idempotency-Key": uuid4().hex}
    first = robin.post("/v1/facts", json=made, headers=key)
    fact(robin, "Evidence", new("p"), "an entity with an unlucky name")
    until_erased(admin, tombstone(admin, "Evidence", erase=True))
    assert robin.post("/v1/facts", json=made, headers=key).json() == first.json()


def test_agents_see_neither_the_job_nor_the_tombstone(
    planted: Planted, robin: httpx.Client, admin: httpx.Client
) -> None:
    answer = admin.post("/v1/tombstones", json={"entity": planted.name, "reason": "rtbf", "erase": True})
    job = answer.json()["job_id"]
    until_erased(admin, answer.json()["tombstone"])
    assert admin.get(f"/v1/jobs/{job}").json()["status"] == "completed"
    assert error(robin.get(f"/v1/jobs/{job}"))[0] == 404
    assert not [item for item in robin.get("/v1/jobs").json()["jobs"] if item["kind"] in ("erase", "seal")]
    for path in ("", f"/{answer.json()['tombstone']['tombstone_id']}"):
        assert error(robin.get(f"/v1/tombstones{path}")) == (403, "tombstone_access_denied")


def test_it_is_on_record_without_a_word_of_what_it_was(
    planted: Planted, admin: httpx.Client, database: TestDatabase
) -> None:
    made = tombstone(admin, planted.name, erase=True)
    until_erased(admin, made)
    deadline = time.monotonic() + 60
    found: list[dict[str, Any]] = []
    while not found and time.monotonic() < deadline:
        found = [
            event
            for event in events(admin, event_type="erasure_completed")
            if event["details"]["tombstone_id"] == made["tombstone_id"]
        ]
        time.sleep(0.1)
    assert set(found[0]["details"]) == {"tombstone_id", "entity_id", "facts", "notes", "objects"}


def test_a_key_of_the_deployment_signs(
    database: TestDatabase, keys: dict[str, str], as_key: Callable[..., httpx.Client], tmp_path: Path
) -> None:
    from tests.service import start_service

    seed = base64.b64encode(bytes(range(32))).decode()
    with start_service(database.url("app"), SIGNING_KEY=seed) as other:
        key = httpx.get(f"{other.url}/.well-known/palimpsest").json()["signing"]["public_key"]
    assert key == "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="
