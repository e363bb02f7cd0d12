"""Repairs: what each does, never for the hopeless, and on all replicas together no more often than allowed."""

# Clients that wait are fine here: the service is a process of its own, and nothing else runs.

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import httpx
import pytest

from app.access import new_id
from app.db.database import Database
from app.db.scope import Scope
from app.errors import RateLimited
from app.maintenance import repairs
from app.maintenance.schemas import Action, Repaired
from tests.facts.shared import error
from tests.maintenance.conftest import World, days, now

pytestmark = pytest.mark.anyio


async def repaired(db: Database, tenant: str, action: Action, project: str = "default") -> Repaired:
    who = Scope(tenant_id=tenant, project_id=project)
    return (await repairs.run(db, who, action=action, requested_by="a key")).result


def cooled(world: World, tenant: str) -> None:
    """An hour and a day go by."""
    world.run("UPDATE repairs SET created_at = created_at - interval '1 day' WHERE tenant_id = %s", tenant)


async def test_requeue_dead_takes_the_newest_fifty(db: Database, world: World, tenant: str) -> None:
    world.project(tenant)
    jobs = [world.job(tenant, status="dead", finished_at=now() - timedelta(minutes=place)) for place in range(52)]
    failed = world.job(tenant, status="failed")
    done = await repaired(db, tenant, "requeue-dead")
    assert (done.success, done.affected) == (True, 50)
    assert {world.status(job) for job in jobs[:50]} == {"pending"}
    assert {world.status(job) for job in jobs[50:]} == {"dead"}
    assert world.status(failed) == "failed", "what cannot be helped by trying again is left"
    assert world.one("SELECT attempts FROM jobs WHERE job_id = %s", jobs[0]) == 0


async def test_requeue_dead_leaves_the_hopeless(db: Database, world: World, tenant: str) -> None:
    world.project(tenant)
    gone, private = (
        world.note(tenant, deleted_at=days(1)),
        world.note(tenant, scope="agent_private", agent_id="wren", owner_key="wren"),
    )
    twice = world.job(tenant, status="dead")
    lost = world.job(tenant, status="dead", payload={"note_id": gone})
    missing = world.job(tenant, status="dead", kind="document_ingest", payload={"document_id": new_id()})
    wanted = world.job(tenant, status="dead", payload={"note_id": private})
    assert (await repaired(db, tenant, "requeue-dead")).affected == 2
    assert [world.status(job) for job in (twice, lost, missing, wanted)] == ["pending", "dead", "dead", "pending"]
    world.run("UPDATE jobs SET status = 'dead', finished_at = now() WHERE job_id = %s", twice)
    cooled(world, tenant)
    assert (await repaired(db, tenant, "requeue-dead")).affected == 0
    assert world.status(twice) == "dead", "it died again after a repair"


async def test_requeue_dead_is_not_stopped_by_work_that_is_open_again(db: Database, world: World, tenant: str) -> None:
    world.project(tenant)
    open_again = world.job(tenant, status="dead", dedupe_key="same")
    world.job(tenant, status="pending", dedupe_key="same")
    pair = [world.job(tenant, status="dead", dedupe_key="pair") for _ in range(2)]
    other = world.job(tenant, status="dead")
    assert (await repaired(db, tenant, "requeue-dead")).affected == 2
    assert world.status(open_again) == "dead"
    assert sorted(world.status(job) for job in pair) == ["dead", "pending"]
    assert world.status(other) == "pending"


async def test_release_leases_returns_what_ran_out_in_the_project(db: Database, world: World, tenant: str) -> None:
    world.project(tenant)
    world.project(tenant, "second")
    past = now() - timedelta(minutes=1)
    stale = world.job(tenant, status="leased", lease_expires_at=past, attempts=1)
    spent = world.job(tenant, status="leased", lease_expires_at=past, attempts=5)
    fresh = world.job(tenant, status="leased")
    elsewhere = world.job(tenant, "second", status="leased", lease_expires_at=past)
    assert (await repaired(db, tenant, "release-leases")).affected == 2
    found = [world.status(job) for job in (stale, spent, fresh, elsewhere)]
    assert found == ["pending", "dead", "leased", "leased"]


async def test_check_index_reads_anew_what_is_not_found_by_its_words(db: Database, world: World, tenant: str) -> None:
    world.project(tenant)
    right, empty, wrong = world.note(tenant), world.note(tenant, terms=False), world.note(tenant)
    private = world.note(tenant, terms=False, scope="agent_private", agent_id="wren", owner_key="wren")
    world.run("UPDATE memory_notes SET terms = 'other:1' WHERE note_id = %s", wrong)
    assert (await repaired(db, tenant, "check-index")).affected == 3
    off = (
        "SELECT count(*) FROM memory_notes WHERE tenant_id = %s "
        "AND terms <> note_terms(tenant_id, project_id, author, occurred_at, tags, content)"
    )
    assert world.one(off, tenant) == 0
    assert {right, empty, wrong, private} == world.ids("memory_notes", "note_id", tenant)


async def test_reembed_queues_what_has_no_vector(db: Database, world: World, tenant: str) -> None:
    world.project(tenant)
    item = world.note(tenant)
    world.note(tenant, deleted_at=days(1))
    assert (await repaired(db, tenant, "reembed")).affected == 1
    assert world.ids("embedding_queue", "owner_id", tenant) == {item}


async def test_retention_sweep_is_of_the_project(db: Database, world: World, tenant: str) -> None:
    world.project(tenant)
    world.project(tenant, "second")
    for project in ("default", "second"):
        world.note(tenant, project, deleted_at=days(31))
    done = await repaired(db, tenant, "retention-sweep")
    assert (done.affected, done.message) == (1, "Purged: notes 1.")
    assert len(world.ids("memory_notes", "note_id", tenant)) == 1


async def test_cooldown_and_budget_are_those_of_the_settings(db: Database, world: World, tenant: str) -> None:
    world.project(tenant, repair_requeue_cooldown_ms=5000, repair_requeue_hourly_budget=2)
    world.project(tenant, "second")
    await repaired(db, tenant, "requeue-dead")
    with pytest.raises(RateLimited) as refused:
        await repaired(db, tenant, "requeue-dead")
    assert refused.value.code == "repair_cooling_down"
    assert 1 <= refused.value.retry_after <= 5
    await repaired(db, tenant, "release-leases")
    await repaired(db, tenant, "requeue-dead", "second")
    world.run("UPDATE repairs SET created_at = created_at - interval '10 s' WHERE tenant_id = %s", tenant)
    await repaired(db, tenant, "requeue-dead")
    world.run("UPDATE repairs SET created_at = created_at - interval '10 s' WHERE tenant_id = %s", tenant)
    with pytest.raises(RateLimited) as refused:
        await repaired(db, tenant, "requeue-dead")
    assert refused.value.code == "repair_budget_spent"
    assert 3500 <= refused.value.retry_after <= 3600
    world.run("UPDATE repairs SET created_at = created_at - interval '1 h' WHERE tenant_id = %s", tenant)
    assert (await repaired(db, tenant, "requeue-dead")).success


async def test_two_at_once_are_one(db: Database, world: World, tenant: str) -> None:
    world.project(tenant)
    both = await asyncio.gather(*(repaired(db, tenant, "requeue-dead") for _ in range(2)), return_exceptions=True)
    assert sorted(type(item).__name__ for item in both) == ["RateLimited", "Repaired"]


def test_over_http(world: World, admin: httpx.Client, robin: httpx.Client) -> None:
    assert error(robin.post("/v1/repair/requeue-dead")) == (403, "wrong_key_kind")
    unknown = admin.post("/v1/repair/everything")
    assert error(unknown) == (404, "repair_not_found")
    assert "requeue-dead, release-leases, check-index, retention-sweep" in unknown.json()["error"]["message"]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: admin.post("/v1/repair/release-leases"), range(2)))
    assert sorted(answer.status_code for answer in answers) == [200, 429]
    (good,) = (answer.json() for answer in answers if answer.status_code == 200)
    assert good == {
        "action": "release-leases",
        "success": True,
        "affected": 0,
        "message": "0 expired leases were released.",
    }
    (refused,) = (answer for answer in answers if answer.status_code == 429)
    assert error(refused) == (429, "repair_cooling_down")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    lines = world.run("SELECT details FROM audit_log WHERE event_type = 'admin_action' AND tenant_id = 'acme' "
                      "AND details ->> 'repair' = 'release-leases'")  # fmt: skip
    assert len(lines) == 1


def test_frozen_mutations_stop_what_changes_memory(world: World, admin: httpx.Client) -> None:
    world.run("UPDATE projects SET settings = jsonb_set(settings, '{pipeline}', %s::jsonb) "
              "WHERE tenant_id = 'acme' AND project_id = 'default'", '{"mutations_frozen": true}')  # fmt: skip
    assert error(admin.post("/v1/repair/retention-sweep")) == (409, "mutations_frozen")
    assert admin.post("/v1/repair/requeue-dead").status_code == 200
