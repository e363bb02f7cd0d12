"""The worker: retries, dead letters, cancellation, leases that run out, drain, wake-up, fairness."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import text

from app.config import Settings
from app.db.database import Database
from app.db.scope import Scope
from app.jobs import queries
from app.jobs.queue import NewJob, enqueue, enqueue_all
from app.jobs.registry import Handler, Job, PermanentFailure, Registry
from app.jobs.worker import Worker
from app.main import build_registry, open_database
from tests.conftest import TestDatabase

pytestmark = pytest.mark.anyio

ACME = Scope(tenant_id="acme", project_id="default", agent_id="robin")


@pytest.fixture
async def db(fresh_database: TestDatabase) -> AsyncIterator[Database]:
    made = open_database(fresh_database.settings())
    await made.open()
    yield made
    await made.close()


def settings(database: TestDatabase, **changes: Any) -> Settings:
    return database.settings(**{"lease_seconds": 2.0, "poll_seconds": 5.0, "drain_seconds": 5.0, **changes})


@asynccontextmanager
async def working(
    db: Database, database: TestDatabase, handlers: dict[str, Handler], **changes: Any
) -> AsyncIterator[Worker]:
    """A worker with these handlers, drained at the end."""
    registry = Registry()
    for kind, handler in handlers.items():
        registry.register(kind, handler, backoff=(0.05, 0.1))
    worker = Worker(db, registry, settings(database, **changes))
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await running


async def put(db: Database, who: Scope = ACME, **fields: Any) -> str:
    async with db.tenant(who) as session:
        return await enqueue(session, who, job=NewJob(**{"kind": "work", **fields}))


def state(database: TestDatabase, job_id: str) -> dict[str, Any]:
    with psycopg.Connection[dict[str, Any]].connect(database.superuser, row_factory=dict_row) as connection:
        row = connection.execute("SELECT * FROM jobs WHERE job_id = %s", (job_id,)).fetchone()
        assert row is not None
        return row


async def until(database: TestDatabase, job_id: str, *statuses: str, seconds: float = 60) -> dict[str, Any]:
    """The job once it is in one of these states."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        row = state(database, job_id)
        if row["status"] in statuses:
            return row
        await asyncio.sleep(0.02)
    raise AssertionError(f"still {state(database, job_id)}")


async def test_a_job_runs_and_is_completed(db: Database, fresh_database: TestDatabase) -> None:
    done: list[dict[str, Any]] = []

    async def handler(job: Job) -> None:
        done.append(job.payload)

    async with working(db, fresh_database, {"work": handler}):
        job_id = await put(db, payload={"words": "hello"})
        row = await until(fresh_database, job_id, "completed")
    assert done == [{"words": "hello"}]
    assert row["attempts"] == 1
    assert row["finished_at"] is not None


async def test_a_wake_up_is_faster_than_the_poll(db: Database, fresh_database: TestDatabase) -> None:
    async def handler(_: Job) -> None:
        return None

    async with working(db, fresh_database, {"work": handler}, poll_seconds=30.0):
        await asyncio.sleep(1)
        started = time.monotonic()
        await until(fresh_database, await put(db), "completed", seconds=20)
        assert time.monotonic() - started < 10


async def test_a_rolled_back_transaction_leaves_no_job(db: Database, fresh_database: TestDatabase) -> None:
    async def fail() -> None:
        async with db.tenant(ACME) as session:
            await enqueue(session, ACME, job=NewJob(kind="work"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    with psycopg.connect(fresh_database.superuser) as connection:
        assert connection.execute("SELECT count(*) FROM jobs").fetchone() == (0,)


async def test_a_failure_is_retried_and_then_dead(db: Database, fresh_database: TestDatabase) -> None:
    tries: list[int] = []

    async def handler(job: Job) -> None:
        tries.append(job.attempt)
        raise ValueError("no luck")

    async with working(db, fresh_database, {"work": handler}, poll_seconds=0.1):
        row = await until(fresh_database, await put(db, max_attempts=3), "dead")
    assert tries == [1, 2, 3]
    assert row["last_error"] == "ValueError: no luck"


async def test_a_permanent_failure_is_not_retried(db: Database, fresh_database: TestDatabase) -> None:
    async def handler(_: Job) -> None:
        raise PermanentFailure("the document is empty")

    async with working(db, fresh_database, {"work": handler}):
        row = await until(fresh_database, await put(db), "failed")
    assert row["attempts"] == 1
    assert row["last_error"] == "the document is empty"


async def test_back_off_grows_and_stays_within_a_fifth() -> None:
    registry = Registry()

    async def handler(_: Job) -> None:
        return None

    registry.register("work", handler, backoff=(10.0, 100.0))
    for attempt, base in ((1, 10.0), (2, 100.0), (9, 100.0)):
        for _ in range(50):
            assert 0.8 * base <= registry["work"].delay(attempt) <= 1.2 * base


async def test_an_open_dedupe_key_enqueues_no_second_job(db: Database) -> None:
    first = await put(db, dedupe_key="card:7")
    assert await put(db, dedupe_key="card:7") == first
    assert await put(db, dedupe_key="card:8") != first
    assert await put(db, kind="other", dedupe_key="card:7") != first


async def test_a_dedupe_key_is_free_again_when_the_job_has_ended(db: Database, fresh_database: TestDatabase) -> None:
    async def handler(_: Job) -> None:
        return None

    async with working(db, fresh_database, {"work": handler}):
        first = await put(db, dedupe_key="card:7")
        await until(fresh_database, first, "completed")
        assert await put(db, dedupe_key="card:7") != first


async def test_a_worker_leases_only_kinds_it_can_do(db: Database, fresh_database: TestDatabase) -> None:
    async def handler(_: Job) -> None:
        return None

    async with working(db, fresh_database, {"work": handler}, poll_seconds=0.1):
        foreign = await put(db, kind="from_the_future")
        await until(fresh_database, await put(db), "completed")
    assert state(fresh_database, foreign)["status"] == "pending"


async def test_a_cancelled_job_cannot_commit_its_effect(db: Database, fresh_database: TestDatabase) -> None:
    with psycopg.connect(fresh_database.superuser, autocommit=True) as connection:
        connection.execute("CREATE TABLE effects (job_id uuid); GRANT INSERT ON effects TO palimpsest_app")
    started, go_on = asyncio.Event(), asyncio.Event()

    async def handler(job: Job) -> None:
        started.set()
        await go_on.wait()
        async with job.finishing() as session:
            await session.execute(text("INSERT INTO effects VALUES (:job_id)"), {"job_id": job.job_id})

    async with working(db, fresh_database, {"work": handler}, lease_seconds=60.0):
        job_id = await put(db)
        await started.wait()
        async with db.tenant(ACME) as session:
            assert await queries.cancel_job(session, tenant_id="acme", job_id=job_id, now=datetime.now(UTC))
        go_on.set()
        await asyncio.sleep(0.3)
    assert state(fresh_database, job_id)["status"] == "cancelled"
    with psycopg.connect(fresh_database.superuser) as connection:
        assert connection.execute("SELECT count(*) FROM effects").fetchone() == (0,)


async def test_a_long_job_keeps_its_lease_by_heartbeat(db: Database, fresh_database: TestDatabase) -> None:
    runs: list[int] = []

    async def handler(job: Job) -> None:
        runs.append(job.attempt)
        await asyncio.sleep(3)

    async with working(db, fresh_database, {"work": handler}, lease_seconds=1.0):
        row = await until(fresh_database, await put(db), "completed")
    assert runs == [1]
    assert row["attempts"] == 1


async def test_a_job_whose_worker_died_is_leased_by_another(db: Database, fresh_database: TestDatabase) -> None:
    job_id = await put(db)
    rows = await db.call(queries.LEASE, ("gone", ["work"], 10, 0.5, ""))
    assert [str(row["job_id"]) for row in rows] == [job_id]
    done: list[int] = []

    async def handler(job: Job) -> None:
        done.append(job.attempt)

    async with working(db, fresh_database, {"work": handler}, lease_seconds=1.0, poll_seconds=0.2):
        await until(fresh_database, job_id, "completed")
    assert done == [2]
    held = await db.call(queries.FINISH, ("acme", "default", rows[0]["job_id"], "gone", "completed", None, None))
    assert held == [{"held": False}]


async def test_a_job_without_attempts_left_after_crashes_is_dead(db: Database, fresh_database: TestDatabase) -> None:
    job_id = await put(db, max_attempts=1)
    await db.call(queries.LEASE, ("gone", ["work"], 10, 0.0, ""))
    await db.call(queries.REAP, (10,))
    row = state(fresh_database, job_id)
    assert row["status"] == "dead"
    assert row["last_error"].startswith("lease_expired")


async def test_drain_returns_unfinished_jobs_without_counting_the_attempt(
    db: Database, fresh_database: TestDatabase
) -> None:
    started = asyncio.Event()

    async def handler(_: Job) -> None:
        started.set()
        await asyncio.sleep(60)

    async with working(db, fresh_database, {"work": handler}, drain_seconds=0.2, lease_seconds=60.0):
        job_id = await put(db)
        await started.wait()
    row = state(fresh_database, job_id)
    assert (row["status"], row["attempts"], row["lease_owner"]) == ("pending", 0, None)


async def test_drain_lets_running_work_finish_and_takes_no_more(db: Database, fresh_database: TestDatabase) -> None:
    started = asyncio.Event()

    async def handler(_: Job) -> None:
        started.set()
        await asyncio.sleep(0.5)

    async with working(db, fresh_database, {"work": handler}, worker_concurrency=1):
        first, second = await put(db), await put(db)
        await started.wait()
    assert state(fresh_database, first)["status"] == "completed"
    assert state(fresh_database, second)["status"] == "pending"


async def test_priority_comes_first_then_age(db: Database, fresh_database: TestDatabase) -> None:
    now = datetime.now(UTC)
    old = await put(db, available_at=now - timedelta(minutes=5))
    urgent = await put(db, priority=5)
    older = await put(db, available_at=now - timedelta(minutes=9))
    await put(db, priority=9, available_at=now + timedelta(hours=1))
    order = [str((await db.call(queries.LEASE, ("w", ["work"], 1, 60.0, "")))[0]["job_id"]) for _ in range(3)]
    assert order == [urgent, older, old]
    assert await db.call(queries.LEASE, ("w", ["work"], 1, 60.0, "")) == []


async def test_many_jobs_of_one_tenant_do_not_delay_others(db: Database) -> None:
    for name, count in (("flood", 300), ("aaa", 3), ("mmm", 3), ("zzz", 3)):
        who = Scope(tenant_id=name)
        async with db.tenant(Scope(tenant_id=name, reach="cross_project")) as session:
            await enqueue_all(session, who, jobs=[NewJob(kind="work") for _ in range(count)])
    after, taken = "", []
    for _ in range(3):
        rows = await db.call(queries.LEASE, ("w", ["work"], 4, 60.0, after))
        after = rows[-1]["tenant_id"]
        taken.append(sorted(row["tenant_id"] for row in rows))
    assert taken == [["aaa", "flood", "mmm", "zzz"]] * 3
    alone = await db.call(queries.LEASE, ("w", ["work"], 10, 60.0, after))
    assert [row["tenant_id"] for row in alone] == ["flood"] * 10


async def test_the_round_robin_continues_after_the_last_tenant(db: Database) -> None:
    for name in ("a", "b", "c"):
        async with db.tenant(Scope(tenant_id=name, reach="cross_project")) as session:
            await enqueue_all(session, Scope(tenant_id=name), jobs=[NewJob(kind="work") for _ in range(2)])
    seen, after = [], "b"
    for _ in range(6):
        (row,) = await db.call(queries.LEASE, ("w", ["work"], 1, 60.0, after))
        after = row["tenant_id"]
        seen.append(after)
    assert seen == ["c", "a", "b", "c", "a", "b"]


async def test_maintenance_deletes_expired_rows(db: Database, fresh_database: TestDatabase) -> None:
    with psycopg.connect(fresh_database.superuser, autocommit=True) as connection:
        connection.execute("INSERT INTO tenants VALUES ('acme', '', now() - interval '1 day'), ('idle', '', now())")
        connection.execute(
            "INSERT INTO jobs (tenant_id, job_id, kind, payload, created_by, available_at, created_at, status, "
            "finished_at) SELECT 'acme', gen_random_uuid(), 'work', '{}', 'x', now(), now(), s, now() - age "
            "FROM (VALUES ('completed', interval '15 days'), ('completed', interval '13 days'), "
            "('dead', interval '31 days'), ('dead', interval '29 days')) v (s, age)"
        )
        connection.execute(
            "INSERT INTO idempotency_keys "
            "SELECT 'acme', gen_random_uuid(), 'POST', '/', 'k', '', 200, '', false, now(), now() - interval '1 second'"
        )
    chosen = settings(fresh_database, poll_seconds=0.1)
    worker = Worker(db, build_registry(db, chosen), chosen)
    running = asyncio.create_task(worker.run())
    try:
        deadline = time.monotonic() + 60
        done: Any = None
        while time.monotonic() < deadline and (done is None or len(done) < 2):
            await asyncio.sleep(0.05)
            with psycopg.connect(fresh_database.superuser) as connection:
                done = connection.execute(
                    "SELECT tenant_id, kind FROM jobs WHERE kind IN ('maintenance', 'retention') "
                    "AND status = 'completed' ORDER BY kind"
                ).fetchall()
    finally:
        worker.stop()
        await running
    assert done == [("acme", "maintenance"), ("acme", "retention")], "a tenant with nothing to clear gets no job"
    with psycopg.connect(fresh_database.superuser) as connection:
        left = connection.execute("SELECT status FROM jobs WHERE kind = 'work' ORDER BY status").fetchall()
        assert left == [("completed",), ("dead",)]
        assert connection.execute("SELECT count(*) FROM idempotency_keys").fetchone() == (0,)


async def test_tenants_with_only_foreign_kinds_do_not_hold_up_the_others(
    db: Database, fresh_database: TestDatabase
) -> None:
    async def handler(_: Job) -> None:
        return None

    for number in range(12):
        await put(db, Scope(tenant_id=f"a{number:02}", project_id="default"), kind="foreign")
    mine = [await put(db, Scope(tenant_id="zz", project_id="default")) for _ in range(3)]
    async with working(db, fresh_database, {"work": handler}, worker_concurrency=1, poll_seconds=0.1):
        for job_id in mine:
            await until(fresh_database, job_id, "completed")


async def test_the_round_robin_continues_after_more_tenants_than_one_call_examines(
    db: Database, fresh_database: TestDatabase
) -> None:
    with psycopg.connect(fresh_database.superuser, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO jobs (tenant_id, job_id, kind, payload, created_by, available_at, created_at) "
            "SELECT 'later-' || i, gen_random_uuid(), 'work', '{}', 'x', now() + interval '1 day', now() "
            "FROM generate_series(1, 1200) i"
        )
    await put(db, Scope(tenant_id="zz", project_id="default"))
    after, calls = "", 0
    while calls < 5:
        calls += 1
        (row,) = await db.call(queries.LEASE, (f"w{calls}", ["work"], 10, 60.0, after))
        after = row["tenant_id"]
        if row["job_id"] is not None:
            break
    assert (after, calls) == ("zz", 3)


async def test_a_job_whose_end_was_lost_is_leased_again(db: Database, fresh_database: TestDatabase) -> None:
    runs: list[int] = []

    async def handler(job: Job) -> None:
        runs.append(job.attempt)
        if job.attempt == 1:
            job.ended = True  # as if the completion had been written and was lost with the connection

    async def busy(_: Job) -> None:
        await asyncio.sleep(4)

    async with working(db, fresh_database, {"work": handler, "busy": busy}, lease_seconds=1.0, poll_seconds=0.2):
        await put(db, kind="busy")
        row = await until(fresh_database, await put(db), "completed")
    assert runs == [1, 2]
    assert row["attempts"] == 2


async def test_an_error_that_is_not_valid_text_is_recorded(db: Database, fresh_database: TestDatabase) -> None:
    async def handler(_: Job) -> None:
        raise ValueError("half a pair \ud800 and a NUL \0")

    async with working(db, fresh_database, {"work": handler}):
        row = await until(fresh_database, await put(db, max_attempts=1), "dead")
    assert row["last_error"] == "ValueError: half a pair ? and a NUL "


async def test_a_cancelled_attempt_cannot_end_the_one_that_followed(db: Database, fresh_database: TestDatabase) -> None:
    job_id = await put(db)
    (first,) = await db.call(queries.LEASE, ("w:1", ["work"], 1, 60.0, ""))
    async with db.tenant(ACME) as session:
        now = datetime.now(UTC)
        assert await queries.cancel_job(session, tenant_id="acme", job_id=job_id, now=now)
        assert await queries.retry_job(session, tenant_id="acme", job_id=job_id, now=now)
    (second,) = await db.call(queries.LEASE, ("w:2", ["work"], 1, 60.0, ""))
    assert (first["attempts"], second["attempts"]) == (1, 1)
    end = ("acme", "default", first["job_id"])
    assert await db.call(queries.FINISH, (*end, "w:1", "completed", None, None)) == [{"held": False}]
    assert await db.call(queries.FINISH, (*end, "w:2", "completed", None, None)) == [{"held": True}]


async def test_a_dedupe_key_counts_within_its_project(db: Database) -> None:
    there = Scope(tenant_id="acme", project_id="other")
    first = await put(db, dedupe_key="card:7")
    second = await put(db, there, dedupe_key="card:7")
    assert first != second
    assert await put(db, there, dedupe_key="card:7") == second


async def test_old_finished_jobs_do_not_schedule_maintenance(db: Database, fresh_database: TestDatabase) -> None:
    with psycopg.connect(fresh_database.superuser, autocommit=True) as connection:
        connection.execute("INSERT INTO tenants VALUES ('acme', '', now())")
        connection.execute(
            "INSERT INTO jobs (tenant_id, job_id, kind, payload, created_by, available_at, created_at, status, "
            "finished_at) VALUES ('acme', gen_random_uuid(), 'work', '{}', 'x', now(), now(), 'dead', "
            "now() - interval '9 days')"
        )
    assert await db.call(queries.SCHEDULE_MAINTENANCE, (0,)) == []
