"""Retention Worker: six steps in their order, 500 rows each, never what is hidden, held, young or of others."""

# Clients that wait are fine here: the service is a process of its own, and nothing else runs.
# ruff: noqa: ASYNC212

from datetime import timedelta

import httpx
import psycopg
import pytest

from app.access import new_id
from app.db.database import Database
from app.db.scope import CROSS_PROJECT, Scope
from app.jobs.registry import Job
from app.maintenance import retention
from app.maintenance.tasks import retain
from tests.conftest import TestDatabase
from tests.erasure.shared import tombstone
from tests.facts.shared import entity, fact, new, note
from tests.maintenance.conftest import World, days, now

pytestmark = pytest.mark.anyio

VECTOR = f"[{','.join(['0'] * 383)},1]"


def whole(tenant: str) -> Scope:
    return Scope(tenant_id=tenant, reach=CROSS_PROJECT)


async def test_retention_worker_purges_what_is_past_its_window_and_nothing_else(
    db: Database, world: World, tenant: str
) -> None:
    world.project(tenant)
    live, young = world.note(tenant), world.note(tenant, deleted_at=days(29))
    old = world.note(tenant, deleted_at=days(31), scope="agent_private", owner_key="wren", agent_id="wren")
    orphan, shared, earlier = world.entity(tenant), world.entity(tenant), world.entity(tenant, at=days(200))
    for item in (orphan, shared, earlier):
        world.mention(tenant, old, item)
    world.mention(tenant, live, shared)
    world.history(tenant, old, days(40))
    past, recent = world.history(tenant, live, days(181)), world.history(tenant, live, days(179))
    done, cancelled = (world.job(tenant, status=status, finished_at=days(15)) for status in ("completed", "cancelled"))
    dead, failed = (world.job(tenant, status=status, finished_at=days(31)) for status in ("dead", "failed"))
    kept = {
        world.job(tenant, status="completed", finished_at=days(13)),
        world.job(tenant, status="dead", finished_at=days(29)),
        world.job(tenant, status="pending", created_at=days(99)),
    }
    counts = await retention.sweep(db, whole(tenant))
    assert {name: count for name, count in counts.items() if count} == {
        "mentions": 3, "entities": 1, "notes": 1, "history": 1, "finished_jobs": 2, "lost_jobs": 2,
    }  # fmt: skip
    assert world.ids("memory_notes", "note_id", tenant) == {live, young}
    assert world.ids("graph_entities", "entity_id", tenant) == {shared, earlier}, "what stood before the note stays"
    assert world.ids("memory_history", "history_id", tenant) == {recent}
    assert past != recent
    assert world.ids("jobs", "job_id", tenant) == kept
    assert not {done, cancelled, dead, failed} & kept
    again = await retention.sweep(db, whole(tenant))
    assert not any(again.values())


async def test_retention_worker_takes_its_steps_in_order_and_at_most_500_rows_each(
    db: Database, world: World, tenant: str
) -> None:
    assert [name for name, *_ in retention.STEPS] == [
        "links", "vectors", "notes", "objects", "history", "finished_jobs", "lost_jobs", "calls", "repairs",
    ]  # fmt: skip
    world.project(tenant)
    many = world.note(tenant, deleted_at=days(40))
    world.run(
        "INSERT INTO graph_entities "
        "(tenant_id, entity_id, project_id, canonical, canonical_norm, created_at, updated_at) "
        "SELECT %s, make_id(), 'default', 'e' || i, 'e' || i, now(), now() FROM generate_series(1, 501) i",
        tenant,
    )
    world.run(
        "INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at) "
        "SELECT %s, 'default', %s, e.entity_id, now() FROM graph_entities e WHERE e.tenant_id = %s",
        *(tenant, many, tenant),
    )
    first = await retention.sweep(db, whole(tenant))
    assert (first["mentions"], first["entities"], first["notes"], first["full"]) == (500, 500, 0, True)
    second = await retention.sweep(db, whole(tenant))
    assert (second["mentions"], second["entities"], second["notes"], second["full"]) == (1, 1, 1, False)

    world.run(
        "INSERT INTO jobs "
        "(tenant_id, job_id, kind, status, payload, available_at, created_by, created_at, finished_at) "
        "SELECT %s, make_id(), 'x', 'completed', '{}', %s, 'test', %s, %s FROM generate_series(1, 501)",
        *(tenant, days(20), days(20), days(20)),
    )
    assert (await retention.sweep(db, whole(tenant)))["finished_jobs"] == 500
    assert (await retention.sweep(db, whole(tenant)))["finished_jobs"] == 1


async def test_retention_worker_removes_vectors_and_keeps_their_count(db: Database, world: World, tenant: str) -> None:
    world.project(tenant)
    old, live = world.note(tenant, deleted_at=days(31)), world.note(tenant)
    for item in (old, live):
        world.insert("embeddings", tenant_id=tenant, project_id="default", owner_kind="note", owner_id=item,
                     view="self", model_id=1, agent_id="robin", scope="project_shared", text_hash=b"x",
                     embedded_at=now(), vector=VECTOR)  # fmt: skip
    world.insert("embedding_counts", tenant_id=tenant, project_id="default", model_id=1, view="self", vectors=2,
                 notes=2, facts=0, counted_at=now())  # fmt: skip
    counts = await retention.sweep(db, whole(tenant))
    assert (counts["vectors"], counts["notes"]) == (1, 1)
    assert world.ids("embeddings", "owner_id", tenant) == {live}
    assert world.run("SELECT vectors, notes FROM embedding_counts WHERE tenant_id = %s", tenant) == [
        {"vectors": 1, "notes": 1}
    ]


async def test_retention_worker_leaves_facts_standing_when_their_evidence_goes(
    db: Database, world: World, robin: httpx.Client
) -> None:
    single = robin.post("/v1/predicates", json={"name": new("p"), "status": "active", "cardinality": "single"}).json()
    who, name = new("Person"), single["predicate"]["name"]
    proof = note(robin)
    first = fact(robin, who, name, "one", valid_from="2020-01-01T00:00:00Z", evidence=[proof])
    second = fact(robin, who, name, "two", valid_from="2021-01-01T00:00:00Z", evidence=[proof])
    robin.request("DELETE", f"/v1/notes/{proof}", json={"reason": "old"})
    world.run("UPDATE memory_notes SET deleted_at = %s WHERE note_id = %s", days(31), proof)
    links = "SELECT count(*) FROM graph_fact_supersessions WHERE from_fact_id = %s AND to_fact_id = %s"
    before = world.one(links, first["fact_id"], second["fact_id"])
    assert before == 1
    counts = await retention.sweep(db, Scope(tenant_id="acme", project_id="default"))
    assert counts["notes"] == 1
    for item in (first, second):
        shown = robin.get(f"/v1/facts/{item['fact_id']}").json()
        assert shown["evidence"] == []
        assert shown["confidence"] == item["confidence"]
    assert world.one(links, first["fact_id"], second["fact_id"]) == 1, "the chain of values is whole"
    assert robin.get(f"/v1/notes/{proof}").status_code == 404


async def test_retention_worker_never_purges_what_is_held_or_hidden(
    db: Database, world: World, robin: httpx.Client, admin: httpx.Client
) -> None:
    held, hidden, evident = new("Held"), new("Hidden"), new("Evident")
    for name in (held, hidden, evident):
        entity(robin, name)
    proof = note(robin, content=new("it was seen"))
    fact(robin, evident, new("p"), "x", evidence=[proof])
    named = note(robin, content=f"{held} was there")
    veiled = note(robin, content=f"{hidden} was there")
    tombstone(admin, held, legal_hold=True)
    tombstone(admin, hidden)
    tombstone(admin, evident, legal_hold=True)
    later = note(robin, content=f"and {held} came again")
    notes = [proof, named, veiled, later]
    plain = note(robin)
    world.run("UPDATE memory_notes SET deleted_at = %s WHERE note_id = ANY (%s::uuid[])", days(60), [*notes, plain])
    world.run("UPDATE memory_history SET created_at = %s, history_id = overlay(first_id(%s)::text PLACING "
              "right(history_id::text, 12) FROM 25)::uuid WHERE note_id = ANY (%s::uuid[])",
              *(days(300), days(300), [*notes, plain]))  # fmt: skip
    counts = await retention.sweep(db, Scope(tenant_id="acme", reach=CROSS_PROJECT))
    assert counts["notes"] == 1
    left = world.run("SELECT note_id FROM memory_notes WHERE note_id = ANY (%s::uuid[])", [*notes, plain])
    assert {str(row["note_id"]) for row in left} == set(notes)
    lines = world.one("SELECT count(DISTINCT note_id) FROM memory_history WHERE note_id = ANY (%s::uuid[])", notes)
    assert lines == len(notes), "their history stays too"


async def test_retention_worker_purges_documents_with_their_links(db: Database, world: World, tenant: str) -> None:
    world.project(tenant)
    chunk = world.note(tenant)
    made = {}
    for age in (29, 31):
        made[age] = new_id()
        world.insert("documents", tenant_id=tenant, document_id=made[age], project_id="default", agent_id="robin",
                     scope="project_shared", owner_key="", source_type="text", tags=[], occurred_at=now(),
                     created_at=days(99), updated_at=now(), deleted_at=days(age))  # fmt: skip
        world.insert("document_notes", tenant_id=tenant, document_id=made[age], chunk_index=0, note_id=chunk,
                     project_id="default", agent_id="robin", scope="project_shared", owned=False)  # fmt: skip
    assert (await retention.sweep(db, whole(tenant)))["documents"] == 1
    assert world.ids("documents", "document_id", tenant) == {made[29]}
    assert world.ids("document_notes", "document_id", tenant) == {made[29]}
    assert world.ids("memory_notes", "note_id", tenant) == {chunk}


async def test_retention_worker_stays_in_its_tenant_and_project_and_obeys_the_brake(
    db: Database, world: World, tenant: str
) -> None:
    other = f"{tenant}x"
    world.project(tenant)
    world.project(tenant, "second")
    world.project(tenant, "frozen", mutations_frozen=True)
    world.project(other)
    for place in ((tenant, "default"), (tenant, "second"), (tenant, "frozen"), (other, "default")):
        world.note(*place, deleted_at=days(31))
    assert (await retention.sweep(db, Scope(tenant_id=tenant, project_id="default")))["notes"] == 1
    assert (await retention.sweep(db, whole(tenant)))["notes"] == 1
    left = world.run("SELECT project_id FROM memory_notes WHERE tenant_id = %s", tenant)
    assert left == [{"project_id": "frozen"}]
    assert len(world.ids("memory_notes", "note_id", other)) == 1
    since = world.one("SELECT settings ->> 'notes_complete_since' FROM projects WHERE tenant_id = %s "
                      "AND project_id = 'second'", tenant)  # fmt: skip
    assert since is not None, "how far back notes are incomplete is told"


async def test_retention_worker_is_scheduled_every_six_hours_and_at_once_after_a_full_sweep(
    db: Database, world: World, tenant: str
) -> None:
    world.project(tenant)
    six = now() - timedelta(hours=6)

    async def scheduled() -> list[str]:
        rows = await db.call("SELECT * FROM schedule_retention(%s)", (six,))
        return [str(row["job_id"]) for row in rows if row["tenant_id"] == tenant]

    (job_id,) = await scheduled()
    assert await scheduled() == [], "one is open"

    async def work(result_full: bool) -> None:
        owner = new_id()
        world.run("UPDATE jobs SET status = 'leased', lease_owner = %s WHERE job_id = %s", owner, job_id)
        row = world.run("SELECT *, interval '0' AS waited FROM jobs WHERE job_id = %s", job_id)[0]
        await retain(Job(db, owner, row))
        world.run("UPDATE jobs SET result = result || jsonb_build_object('full', %s) WHERE job_id = %s",
                  result_full, job_id)  # fmt: skip

    await work(False)
    row = world.run("SELECT status, result FROM jobs WHERE job_id = %s", job_id)[0]
    assert row["status"] == "completed"
    assert set(row["result"]) == {
        "mentions", "entities", "vectors", "notes", "documents", "history", "finished_jobs", "lost_jobs", "calls",
        "repairs", "full", "objects", "relationships",
    }  # fmt: skip
    assert await scheduled() == [], "it ran a moment ago"
    world.run("UPDATE jobs SET finished_at = %s WHERE job_id = %s", now() - timedelta(hours=7), job_id)
    assert await scheduled() == [job_id]
    await work(True)
    assert await scheduled() == [job_id], "there was more"


async def test_retention_worker_is_not_scheduled_for_a_tenant_that_has_nothing_old(
    db: Database, world: World, tenant: str
) -> None:
    world.insert("tenants", tenant_id=tenant, name=tenant, created_at=now())
    rows = await db.call("SELECT * FROM schedule_retention(%s)", (now() - timedelta(hours=6),))
    assert tenant not in {row["tenant_id"] for row in rows}


@pytest.mark.parametrize(
    "call",
    [
        "SELECT * FROM purge_links(now(), 500)",
        "SELECT purge_vectors(now(), 500)",
        "SELECT * FROM purge_notes(now(), 500)",
        "SELECT * FROM purge_objects(now(), 500)",
        "SELECT purge_history(now(), 500)",
        "SELECT purge_records('finished_jobs', now(), 500)",
        "SELECT requeue_dead(50)",
        "SELECT * FROM check_terms(50)",
        "SELECT * FROM diagnose_project(0.1, 1, 1, 30)",
    ],
)
def test_without_a_scope_nothing_is_looked_at_or_purged(database: TestDatabase, call: str) -> None:
    with psycopg.connect(database.app) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(call.encode())


async def test_a_project_in_which_somebody_is_hidden_right_now_is_left_for_the_next_sweep(
    db: Database, world: World, tenant: str, database: TestDatabase
) -> None:
    world.project(tenant)
    item = world.note(tenant, deleted_at=days(31))
    with psycopg.connect(database.superuser) as busy:
        busy.execute("SELECT FROM projects WHERE tenant_id = %s FOR NO KEY UPDATE", (tenant,))
        assert (await retention.sweep(db, whole(tenant)))["notes"] == 0
    assert world.ids("memory_notes", "note_id", tenant) == {item}
    assert (await retention.sweep(db, whole(tenant)))["notes"] == 1


async def test_retention_worker_deletes_only_entities_that_nothing_refers_to(
    db: Database, world: World, tenant: str
) -> None:
    world.project(tenant)
    old = world.note(tenant, deleted_at=days(31))
    named, merged, forgotten, loose = (world.entity(tenant) for _ in range(4))
    for item in (loose, named, merged, forgotten):
        world.mention(tenant, old, item)
    world.insert("graph_entity_aliases", tenant_id=tenant, alias_id=new_id(), project_id="default", entity_id=named,
                 alias="a", alias_norm="a", created_at=now())  # fmt: skip
    other = world.entity(tenant)
    world.run("UPDATE graph_entities SET merged_into = %s WHERE entity_id = %s", merged, other)
    world.insert("tombstones", tenant_id=tenant, tombstone_id=new_id(), project_id="default", entity_id=forgotten,
                 reason="", created_by="x", key_id="x", created_at=now(), legal_hold=False, erase=False,
                 named=False)  # fmt: skip
    counts = await retention.sweep(db, whole(tenant))
    assert (counts["mentions"], counts["entities"]) == (4, 1)
    assert world.ids("graph_entities", "entity_id", tenant) == {named, merged, forgotten, other}


async def test_retention_worker_keeps_what_is_evidence_under_a_hold_of_another_scope(
    db: Database, world: World, robin: httpx.Client, admin: httpx.Client
) -> None:
    name, proof = new("Held"), note(robin)
    fact(robin, name, new("p"), "x", scope="agent_private", evidence=[proof])
    tombstone(admin, name, legal_hold=True, scope="agent_private")
    world.run("UPDATE memory_notes SET deleted_at = %s WHERE note_id = %s", days(60), proof)
    assert world.one("SELECT suppression FROM memory_notes WHERE note_id = %s", proof) == 0, "only the fact is held"
    await retention.sweep(db, whole("acme"))
    assert proof in world.ids("memory_notes", "note_id", "acme")
