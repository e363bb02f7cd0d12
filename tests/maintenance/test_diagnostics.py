"""Diagnostics: each part by the numbers, of one whole project, and never healthy while the graph is empty."""

# Clients that wait are fine here: the service is a process of its own, and nothing else runs.

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest

from app.access import new_id
from app.db.database import Database
from app.db.scope import Scope
from app.maintenance.diagnostics import diagnose
from app.maintenance.schemas import Diagnostics
from tests.conftest import Tenancy
from tests.erasure.shared import tombstone
from tests.facts.shared import entity, error, new, note
from tests.maintenance.conftest import World, days, now

pytestmark = pytest.mark.anyio

VECTOR = f"[{','.join(['0'] * 383)},1]"


async def look(db: Database, tenant: str, project: str = "default") -> Diagnostics:
    return await diagnose(db, Scope(tenant_id=tenant, project_id=project))


def actions(found: Diagnostics) -> list[str]:
    return [item.action for item in found.recommendations]


def embedded(world: World, tenant: str, note_id: str) -> None:
    world.insert(
        "embeddings", tenant_id=tenant, project_id="default", owner_kind="note", owner_id=note_id, view="self",
        model_id=1, agent_id="robin", scope="project_shared", text_hash=b"x", embedded_at=now(), vector=VECTOR,
    )  # fmt: skip


def called(world: World, tenant: str, succeeded: bool, at: float) -> None:
    world.insert(
        "llm_calls", tenant_id=tenant, call_id=new_id(), project_id="default", purpose="extract", model="m",
        input_tokens=1, output_tokens=1, succeeded=succeeded, duration_ms=1, created_at=days(at),
    )  # fmt: skip


async def test_an_empty_project_is_healthy(db: Database, world: World, tenant: str) -> None:
    world.project(tenant)
    found = await look(db, tenant)
    assert (found.score, found.status, found.mode) == (1.0, "healthy", "off")
    assert found.parts.provider.score == 1.0, "no calls, no failures"
    assert found.recommendations == []


async def test_queue_health_by_hand(db: Database, world: World, tenant: str) -> None:
    world.project(tenant)
    for _ in range(50):
        world.job(tenant, status="pending")
    for _ in range(99):
        world.job(tenant, status="completed")
    world.job(tenant, status="dead")
    found = await look(db, tenant)
    queue = found.parts.queue
    assert (queue.score, queue.depth, queue.dead_rate) == (1.0, 50, 0.01), "the bounds themselves are fine"
    world.job(tenant, status="pending", available_at=now() - timedelta(seconds=400))
    world.job(tenant, status="dead")
    found = await look(db, tenant)
    queue = found.parts.queue
    assert queue.oldest_seconds >= 400
    assert queue.score == pytest.approx(1 - 0.3 - 0.3 - 0.2)
    assert found.score == pytest.approx(0.30 * 0.2 + 0.70)
    assert actions(found) == ["requeue-dead"]
    world.job(tenant, status="leased", started_at=now() - timedelta(minutes=11))
    found = await look(db, tenant)
    assert found.parts.queue.score == 0.0
    assert (found.parts.queue.long_leases, found.parts.queue.stale_leases) == (1, 0)
    assert (found.score, found.status) == (0.7, "degraded")
    world.job(tenant, status="leased", lease_expires_at=now() - timedelta(seconds=1))
    assert actions(await look(db, tenant)) == ["requeue-dead", "release-leases"]
    world.run("UPDATE jobs SET finished_at = %s WHERE tenant_id = %s AND status = 'dead'", days(2), tenant)
    assert (await look(db, tenant)).parts.queue.dead_rate == 0, "only the last 24 hours count"


async def test_storage_health_by_hand(db: Database, world: World, tenant: str) -> None:
    world.project(tenant)
    for _ in range(7):
        embedded(world, tenant, world.note(tenant))
    for age in (1, 2, 40):
        world.note(tenant, deleted_at=days(age))
    storage = (await look(db, tenant)).parts.storage
    assert (storage.score, storage.deleted_rate, storage.expired) == (1.0, 0.3, 1)
    world.note(tenant, deleted_at=days(1), scope="agent_private", agent_id="wren", owner_key="wren")
    found = await look(db, tenant)
    assert (found.parts.storage.score, found.parts.storage.deleted) == (0.7, 4), "private notes count"
    assert found.score == pytest.approx(1 - 0.15 * 0.3)
    assert actions(found) == ["retention-sweep"]


async def test_index_health_by_hand(db: Database, world: World, tenant: str) -> None:
    world.project(tenant)
    notes = [world.note(tenant, terms=place != 0) for place in range(10)]
    for item in notes[:8]:
        embedded(world, tenant, item)
    found = await look(db, tenant)
    index = found.parts.index
    assert (index.mismatch, index.coverage, index.score) == (0.1, 0.8, 1.0), "the bounds themselves are fine"
    assert actions(found) == ["check-index"], "any mismatch is worth a look"
    world.run("UPDATE memory_notes SET terms = 'other:1' WHERE note_id = %s", notes[1])
    found = await look(db, tenant)
    assert found.parts.index.mismatch == pytest.approx(0.1 + 0.9 * 1 / 9)
    assert found.parts.index.score == 0.5
    world.run("DELETE FROM embeddings WHERE owner_id = %s", notes[0])
    found = await look(db, tenant)
    assert (found.parts.index.coverage, found.parts.index.score) == (0.7, pytest.approx(0.2))
    assert actions(found) == ["check-index", "reembed"]
    assert found.score == pytest.approx(0.8 + 0.2 * 0.2)


async def test_provider_health_is_the_success_rate_of_the_last_hundred(db: Database, world: World, tenant: str) -> None:
    world.project(tenant)
    for place in range(20):
        called(world, tenant, False, 10 + place)
    for place in range(100):
        called(world, tenant, place >= 40, 1 + place / 1000)
    found = await look(db, tenant)
    assert (found.parts.provider.calls, found.parts.provider.score) == (100, 0.6)
    assert found.score == pytest.approx(0.75 + 0.25 * 0.6)


async def test_mutation_health_by_hand(db: Database, world: World, tenant: str) -> None:
    world.project(tenant)
    item = world.note(tenant)
    embedded(world, tenant, item)
    for _ in range(5):
        world.history(tenant, item, days(1), event="recovered")
    world.history(tenant, item, days(8), event="recovered")
    assert (await look(db, tenant)).parts.mutation.score == 1.0
    world.history(tenant, item, days(6), event="recovered")
    found = await look(db, tenant)
    assert (found.parts.mutation.recoveries, found.parts.mutation.score, found.score) == (6, 0.7, 0.97)


async def test_never_healthy_while_extraction_runs_and_the_graph_stays_empty(
    db: Database, world: World, tenant: str
) -> None:
    world.project(tenant, enabled=True, graph_enabled=True)
    embedded(world, tenant, world.note(tenant, extraction_status="completed"))
    found = await look(db, tenant)
    assert (found.status, found.parts.index.score) == ("degraded", 0.8)
    assert [item.code for item in found.warnings] == ["graph_empty"]
    world.job(tenant, status="dead", kind="graph_link")
    assert {item.code for item in (await look(db, tenant)).warnings} >= {"graph_empty", "graph_links_lost"}
    world.run("UPDATE projects SET settings = jsonb_set(settings, '{pipeline,shadow_mode}', 'true') "
              "WHERE tenant_id = %s", tenant)  # fmt: skip
    assert (await look(db, tenant)).mode == "shadow"
    assert "graph_empty" not in {item.code for item in (await look(db, tenant)).warnings}, "nothing was to be written"


async def test_usage_is_that_of_the_period(db: Database, world: World, tenant: str) -> None:
    world.project(tenant, extraction_token_budget=100, extraction_budget_period="day")
    for day, tokens in ((0, 30), (1, 500)):
        world.insert("llm_usage", tenant_id=tenant, project_id="default", day=days(day).date(), model="m", calls=1,
                     failures=0, input_tokens=tokens, output_tokens=tokens)  # fmt: skip
    usage = (await look(db, tenant)).usage
    assert (usage.period, usage.tokens, usage.budget) == ("day", 60, 100)


async def test_figures_are_of_one_project_of_one_tenant(db: Database, world: World, tenant: str) -> None:
    world.project(tenant)
    world.project(tenant, "second")
    world.project(f"{tenant}x")
    for place in ((tenant, "second"), (f"{tenant}x", "default")):
        world.note(*place, deleted_at=days(1))
        world.job(*place, status="dead")
        world.job(*place, status="pending", available_at=days(1))
    found = await look(db, tenant)
    assert (found.score, found.parts.storage.notes, found.parts.queue.depth) == (1.0, 0, 0)


async def test_what_is_hidden_does_not_count(
    db: Database, world: World, robin: httpx.Client, admin: httpx.Client
) -> None:
    name = new("Hidden")
    entity(robin, name)
    before = (await look(db, "acme")).parts.storage.notes
    note(robin, content=f"{name} was there")
    assert (await look(db, "acme")).parts.storage.notes == before + 1
    tombstone(admin, name)
    assert (await look(db, "acme")).parts.storage.notes == before


def test_who_may_look(
    tenancy: Tenancy, as_key: Callable[..., httpx.Client], robin: httpx.Client, admin: httpx.Client
) -> None:
    assert error(robin.get("/v1/diagnostics")) == (403, "missing_scope")
    answer = admin.get("/v1/diagnostics")
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    assert set(shown) == {"score", "status", "mode", "parts", "recommendations", "warnings", "usage"}
    assert set(shown["parts"]) == {"queue", "storage", "index", "provider", "mutation"}
    watcher = as_key(tenancy.key("acme", scopes=["graph:admin:metrics"]))
    assert watcher.get("/v1/diagnostics").status_code == 200
    unbound = as_key(tenancy.key("acme", kind="admin"))
    assert error(unbound.get("/v1/diagnostics")) == (400, "project_required")
