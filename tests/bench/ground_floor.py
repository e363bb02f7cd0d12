"""Benches of the ground floor: a hot read, requests over HTTP, and the queue."""

import asyncio
import statistics
import subprocess
import sys
import time
from typing import Any
from uuid import UUID

import psycopg

from app.db.scope import Scope
from app.jobs.queries import LEASE, READ_JOB
from app.main import open_database
from app.web.auth import parse_credentials
from app.web.queries import authenticated_call
from tests.bench.load import hammer
from tests.bench.measure import Figure, interleaved
from tests.conftest import Tenancy, TestDatabase
from tests.service import ROOT, clean_environment, start_service

FILL = """
    INSERT INTO jobs (tenant_id, job_id, project_id, kind, payload, created_by, available_at, created_at)
    SELECT 'tenant-' || i %% %(tenants)s, gen_random_uuid(), NULL, 'work', '{}', 'bench', now(), now()
    FROM generate_series(1, %(jobs)s) i"""


def hot_read(database: TestDatabase, *, rounds: int) -> list[Figure]:
    """One function call that sets the scope and answers, beside a bare prepared SELECT of the same row."""
    return asyncio.run(_hot_read(database, rounds))


async def _hot_read(database: TestDatabase, rounds: int) -> list[Figure]:
    tenancy = Tenancy(database)
    await asyncio.to_thread(tenancy.tenant, "bench")
    key = await asyncio.to_thread(tenancy.key, "bench", agent_id="robin")
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        connection.execute(FILL.encode(), {"jobs": 100_000, "tenants": 200})
        connection.execute("UPDATE jobs SET tenant_id = 'bench', project_id = 'default' WHERE tenant_id = 'tenant-7'")
        connection.execute("VACUUM ANALYZE jobs")
        row = connection.execute("SELECT job_id FROM jobs WHERE tenant_id = 'bench' LIMIT 1").fetchone()
        assert row is not None
    job_id: UUID = row[0]
    db = open_database(database.settings())
    await db.open()
    bare = await psycopg.AsyncConnection.connect(database.superuser, autocommit=True, prepare_threshold=0)
    scoped = await psycopg.AsyncConnection.connect(database.app, autocommit=True, prepare_threshold=0)
    # As the hot pool does: its statements only call functions.
    await scoped.execute("SET plan_cache_mode = force_generic_plan")
    columns = (
        "job_id, project_id, kind, status, priority, attempts, max_attempts, created_by, last_error, created_at, "
        "available_at, started_at, finished_at"
    )
    select = f"SELECT {columns} FROM jobs WHERE tenant_id = %s AND job_id = %s".encode()
    function = f"SELECT {columns} FROM read_job(%s, %s, %s, %s, %s, %s, %s)".encode()
    read_job = authenticated_call(READ_JOB)
    credentials = parse_credentials(f"Bearer {key}", None)

    async def run(connection: psycopg.AsyncConnection[Any], query: bytes, params: tuple[Any, ...]) -> None:
        async with connection.cursor(binary=True) as cursor:
            await cursor.execute(query, params)
            assert await cursor.fetchone() is not None

    medians = await interleaved(
        {
            "bare": lambda: run(bare, select, ("bench", job_id)),
            "scope and answer": lambda: run(scoped, function, ("bench", "default", "robin", "{}", "", "*", job_id)),
            "authentication, scope and answer": lambda: run(
                scoped, read_job.encode(), (*credentials.arguments(), job_id)
            ),
            "through the hot pool": lambda: db.call(read_job, (*credentials.arguments(), job_id)),
            "transaction": lambda: _in_transaction(db, job_id),
        },
        rounds=rounds,
        repeats=300,
    )
    await bare.close()
    await scoped.close()
    await db.close()
    floor = medians["bare"]
    return [
        Figure(
            name="hot read: scope and answer, one call",
            value=medians["scope and answer"],
            floor=floor,
            unit="us a call",
            target=1.5,
            kind="ratio at most",
        ),
        Figure(
            name="hot read: with authentication, one call",
            value=medians["authentication, scope and answer"],
            floor=floor,
            unit="us a call",
        ),
        Figure(
            name="hot read: with authentication, hot pool",
            value=medians["through the hot pool"],
            floor=floor,
            unit="us a call",
        ),
        Figure(
            name="the same read in a plain transaction", value=medians["transaction"], floor=floor, unit="us a call"
        ),
    ]


async def _in_transaction(db: Any, job_id: UUID) -> None:
    from app.jobs.tables import jobs

    who = Scope(tenant_id="bench", project_id="default", agent_id="robin")
    async with db.tenant(who) as session:
        found = await session.row(jobs.select().where(jobs.c.tenant_id == "bench", jobs.c.job_id == str(job_id)))
        assert found is not None


def http_rates(database: TestDatabase, *, rounds: int) -> list[Figure]:
    """Requests a second of a hot route and of one that touches no database, by turns."""
    tenancy = Tenancy(database)
    tenancy.tenant("http")
    key = tenancy.key("http", agent_id="robin", rate_limits={"read": 0})
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        row = connection.execute(
            "INSERT INTO jobs (tenant_id, job_id, project_id, kind, payload, created_by, available_at, created_at) "
            "VALUES ('http', gen_random_uuid(), 'default', 'work', '{}', 'bench', now(), now()) RETURNING job_id"
        ).fetchone()
        assert row is not None
    headers = {"Authorization": f"Bearer {key}"}
    rates: dict[str, list[float]] = {"plain": [], "hot": [], "whoami": []}
    paths = {"plain": "/health", "hot": f"/v1/jobs/{row[0]}", "whoami": "/v1/whoami"}
    with start_service(database.url("app"), LOG_LEVEL="warning") as service:
        for number in range(rounds + 1):
            for name, path in paths.items():
                rate = hammer(service.url, path, headers, seconds=1.5, connections=8)
                if number:
                    rates[name].append(rate)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    return [
        Figure(name="HTTP, no database (/health)", value=medians["plain"], unit="requests/s"),
        Figure(
            name="HTTP, hot route (/v1/jobs/{id})",
            value=medians["hot"],
            floor=medians["plain"],
            unit="requests/s",
            target=0.25,
            kind="ratio at least",
        ),
        Figure(name="HTTP, /v1/whoami", value=medians["whoami"], floor=medians["plain"], unit="requests/s"),
    ]


def queue_rates(database: TestDatabase, *, rounds: int) -> list[Figure]:
    """Jobs a second, leased and completed by real worker processes, each completion durable."""
    rates: list[float] = []
    for _ in range(max(1, rounds // 2)):
        rates.append(_drain(database, jobs=8_000, tenants=50, workers=2))
    leases = asyncio.run(_lease_times(database))
    return [
        Figure(
            name="queue: leased and completed, 2 workers", value=statistics.median(rates), unit="jobs/s", target=1000
        ),
        Figure(name="queue: one lease of ten (one round trip)", value=leases, unit="us a call"),
    ]


def _drain(database: TestDatabase, *, jobs: int, tenants: int, workers: int) -> float:
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        connection.execute("TRUNCATE jobs")
        environment = clean_environment(
            DATABASE_URL=database.url("app"), LOG_LEVEL="error", WORKER_CONCURRENCY="20", DATABASE_POOL_SIZE="10"
        )
        running = [
            subprocess.Popen([sys.executable, "-m", "tests.bench.noop_worker"], cwd=ROOT, env=environment)
            for _ in range(workers)
        ]
        time.sleep(3)
        try:
            started = time.perf_counter()
            connection.execute(FILL.encode(), {"jobs": jobs, "tenants": tenants})
            connection.execute("NOTIFY palimpsest_jobs")
            while True:
                left = connection.execute(
                    "SELECT count(*) FROM jobs WHERE kind = 'work' AND status <> 'completed'"
                ).fetchone()
                if left == (0,):
                    return jobs / (time.perf_counter() - started)
                time.sleep(0.05)
        finally:
            for process in running:
                process.kill()
                process.wait()


async def _lease_times(database: TestDatabase) -> float:
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        connection.execute("TRUNCATE jobs")
        connection.execute(FILL.encode(), {"jobs": 20_000, "tenants": 50})
        connection.execute("ANALYZE jobs")
    db = open_database(database.settings())
    await db.open()
    times: list[float] = []
    after = ""
    for _ in range(200):
        started = time.perf_counter()
        rows = await db.call(LEASE, ("bench", ["work"], 10, 60.0, after))
        times.append((time.perf_counter() - started) * 1e6)
        after = rows[-1]["tenant_id"]
    await db.close()
    return statistics.median(times)
