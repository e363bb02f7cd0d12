"""Maintenance Worker: scheduled where wanted, observes or executes, and halts what does not help."""

from datetime import timedelta
from typing import Any

import pytest

from app.access import new_id
from app.db.database import Database
from app.db.scope import Scope
from app.jobs.registry import Job
from app.maintenance import repairs
from app.maintenance.tasks import maintenance_cycle
from tests.maintenance.conftest import World, days, now

pytestmark = pytest.mark.anyio


async def cycle(db: Database, world: World, tenant: str) -> dict[str, Any]:
    """One cycle as a worker would run it; what the job says came of it."""
    job_id, owner = new_id(), new_id()
    world.insert(
        "jobs", tenant_id=tenant, job_id=job_id, project_id="default", status="leased", created_by="schedule",
        kind="maintenance_cycle", payload={}, available_at=now(), created_at=now(), lease_owner=owner, started_at=now(),
        lease_expires_at=now() + timedelta(hours=1),
    )  # fmt: skip
    row = world.run("SELECT *, interval '0' AS waited FROM jobs WHERE job_id = %s", job_id)[0]
    await maintenance_cycle(Job(db, owner, row))
    (ended,) = world.run("SELECT status, result FROM jobs WHERE job_id = %s", job_id)
    assert ended["status"] == "completed"
    world.run("UPDATE repairs SET created_at = created_at - interval '2 h' WHERE tenant_id = %s", tenant)
    return ended["result"]


def runs(world: World, tenant: str) -> list[dict[str, Any]]:
    return world.run("SELECT action, requested_by, score_before, score_after FROM repairs WHERE tenant_id = %s "
                     "ORDER BY created_at", tenant)  # fmt: skip


async def test_observe_only_says(db: Database, world: World, tenant: str) -> None:
    world.project(tenant, autonomous_enabled=True)
    dead = world.job(tenant, status="dead")
    result = await cycle(db, world, tenant)
    assert (result["mode"], result["recommendations"]) == ("observe", ["requeue-dead"])
    assert "repairs" not in result
    assert (world.status(dead), runs(world, tenant)) == ("dead", [])


async def test_execute_repairs_and_records_the_scores(db: Database, world: World, tenant: str) -> None:
    world.project(tenant, autonomous_enabled=True, maintenance_mode="execute")
    dead = world.job(tenant, status="dead")
    result = await cycle(db, world, tenant)
    assert result["repairs"] == [{"action": "requeue-dead", "success": True, "affected": 1}]
    assert (result["score"], result["score_after"]) == (0.91, 1.0)
    assert world.status(dead) == "pending"
    assert runs(world, tenant) == [
        {"action": "requeue-dead", "requested_by": "maintenance", "score_before": 0.91, "score_after": 1.0}
    ]


async def test_an_action_that_helps_three_times_not_is_halted_until_all_is_well(
    db: Database, world: World, tenant: str
) -> None:
    world.project(tenant, autonomous_enabled=True, maintenance_mode="execute")
    # Deleted a day ago: a sweep is recommended, and cannot take it yet.
    item = world.note(tenant, deleted_at=days(1))
    for _ in range(3):
        result = await cycle(db, world, tenant)
        assert result["repairs"] == [{"action": "retention-sweep", "success": True, "affected": 0}]
    result = await cycle(db, world, tenant)
    assert result["repairs"] == [{"action": "retention-sweep", "skipped": "halted"}]
    assert result["halted"] == ["retention-sweep"]
    by_hand = Scope(tenant_id=tenant, project_id="default")
    assert (await repairs.run(db, by_hand, action="retention-sweep", requested_by="a key")).result.success

    world.run("UPDATE memory_notes SET suppression = 1 WHERE note_id = %s", item)
    assert (await cycle(db, world, tenant))["recommendations"] == []
    assert runs(world, tenant)[-1]["action"] == "healthy"
    before = len(runs(world, tenant))
    await cycle(db, world, tenant)
    assert len(runs(world, tenant)) == before, "once is enough"
    world.run("UPDATE memory_notes SET suppression = 0 WHERE note_id = %s", item)
    assert (await cycle(db, world, tenant))["repairs"][0]["success"], "it is tried again"


async def test_cooldown_and_freeze_hold_for_maintenance_too(db: Database, world: World, tenant: str) -> None:
    world.project(tenant, autonomous_enabled=True, maintenance_mode="execute", mutations_frozen=True)
    world.note(tenant, deleted_at=days(40))
    assert (await cycle(db, world, tenant))["repairs"] == [{"action": "retention-sweep", "skipped": "mutations_frozen"}]
    assert len(world.ids("memory_notes", "note_id", tenant)) == 1
    who = Scope(tenant_id=tenant, project_id="default")
    world.job(tenant, status="dead")
    await repairs.run(db, who, action="requeue-dead", requested_by="a key")
    world.job(tenant, status="dead")
    result = await cycle(db, world, tenant)
    assert {"action": "requeue-dead", "skipped": "repair_cooling_down"} in result["repairs"]


async def test_scheduled_only_where_enabled_not_frozen_and_due(db: Database, world: World, tenant: str) -> None:
    world.project(tenant)
    world.project(tenant, "auto", autonomous_enabled=True, maintenance_interval_ms=120_000)
    world.project(tenant, "frozen", autonomous_enabled=True, autonomous_frozen=True)

    async def scheduled() -> list[str]:
        made = {str(row["job_id"]) for row in await db.call("SELECT * FROM schedule_cycles()")}
        rows = world.run("SELECT job_id, project_id FROM jobs WHERE tenant_id = %s", tenant)
        return [row["project_id"] for row in rows if str(row["job_id"]) in made]

    def ended(minutes: float) -> None:
        world.run("UPDATE jobs SET status = 'completed', finished_at = now() - make_interval(secs => %s) "
                  "WHERE tenant_id = %s", minutes * 60, tenant)  # fmt: skip

    assert await scheduled() == ["auto"]
    assert await scheduled() == []
    ended(1)
    assert await scheduled() == []
    ended(3)
    assert await scheduled() == ["auto"]


async def test_a_brake_pulled_after_scheduling_holds(db: Database, world: World, tenant: str) -> None:
    world.project(tenant, autonomous_enabled=True, autonomous_frozen=True, maintenance_mode="execute")
    dead = world.job(tenant, status="dead")
    assert await cycle(db, world, tenant) == {"skipped": "not_autonomous"}
    assert world.status(dead) == "dead"
