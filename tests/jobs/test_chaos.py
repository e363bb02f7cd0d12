"""The queue while workers are killed again and again and one tenant floods: each effect happens exactly once."""

import random
import statistics
import subprocess
import sys
import time
from collections import defaultdict

import psycopg
import pytest

from tests.conftest import TestDatabase
from tests.long import sized
from tests.service import ROOT, clean_environment

WORKERS = 4
JOBS = sized(2_000, 10_000)
KILLS = sized(6, 100)
SMALL_TENANTS = 49
FLOOD = "tenant-25"

FILL = """
    INSERT INTO jobs (tenant_id, job_id, kind, payload, created_by, available_at, created_at, max_attempts)
    SELECT CASE WHEN i <= %(flood)s THEN %(name)s ELSE names[1 + i %% cardinality(names)] END,
           gen_random_uuid(), 'effect', '{}', 'test', now(), now(), 20
    FROM generate_series(1, %(jobs)s) i, (SELECT %(small)s::text[] AS names) x"""


def start_worker(database: TestDatabase) -> subprocess.Popen[bytes]:
    """One worker process with leases of two seconds."""
    environment = clean_environment(
        DATABASE_URL=database.url("app"), LEASE_SECONDS="2", LOG_LEVEL="error", DATABASE_POOL_SIZE="5"
    )
    return subprocess.Popen([sys.executable, "-m", "tests.jobs.chaos_worker"], cwd=ROOT, env=environment)


@pytest.mark.slow
def test_every_effect_happens_exactly_once_and_small_tenants_are_served_alike(fresh_database: TestDatabase) -> None:
    small = [f"tenant-{number:02}" for number in range(SMALL_TENANTS + 1) if f"tenant-{number:02}" != FLOOD]
    with psycopg.connect(fresh_database.superuser, autocommit=True) as connection:
        connection.execute("CREATE TABLE effects (job_id uuid, tenant text, happened_at timestamptz)")
        connection.execute("GRANT INSERT ON effects TO palimpsest_app")
        connection.execute(FILL.encode(), {"flood": JOBS // 2, "jobs": JOBS, "name": FLOOD, "small": small})
        workers = [start_worker(fresh_database) for _ in range(WORKERS)]
        kills = 0
        try:
            dice = random.Random(7)
            deadline = time.monotonic() + 600
            while time.monotonic() < deadline:
                time.sleep(0.05)
                left = connection.execute("SELECT count(*) FROM jobs WHERE status <> 'completed'").fetchone()
                assert left is not None
                if left == (0,):
                    break
                # Killed by the share of the work that is done, so that a slow machine still gets on with it.
                if (JOBS - left[0]) * (KILLS + 1) < JOBS * (kills + 1):
                    continue
                time.sleep(dice.random() / 4)
                victim = dice.randrange(WORKERS)
                workers[victim].kill()
                workers[victim].wait()
                workers[victim] = start_worker(fresh_database)
                kills += 1
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        assert kills >= 3, "nothing was killed, so nothing was shown"
        states = connection.execute("SELECT status, count(*) FROM jobs GROUP BY status").fetchall()
        assert states == [("completed", JOBS)]
        effects = connection.execute("SELECT count(*), count(DISTINCT job_id) FROM effects").fetchone()
        assert effects == (JOBS, JOBS)
        waits: dict[str, list[float]] = defaultdict(list)
        for tenant, seconds in connection.execute(
            "SELECT e.tenant, extract(epoch FROM e.happened_at - j.created_at)::float8 FROM effects e "
            "JOIN jobs j ON j.job_id = e.job_id"
        ):
            waits[tenant].append(seconds)
    medians = {tenant: statistics.median(values) for tenant, values in waits.items() if tenant != FLOOD}
    assert len(medians) == SMALL_TENANTS
    overall = statistics.median([wait for tenant, values in waits.items() if tenant != FLOOD for wait in values])
    assert max(medians.values()) <= 2 * overall
    assert overall < statistics.median(waits[FLOOD]), "the flood waits longest"
