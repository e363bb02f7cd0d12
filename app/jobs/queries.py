"""All SQL of the job queue."""

from datetime import datetime
from typing import Any

from sqlalchemy import Uuid, and_, literal, select, text, tuple_, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from app.db.database import Session
from app.db.scope import ScopedFunction
from app.errors import Conflict
from app.jobs.tables import jobs

COLUMNS = (
    "job_id", "project_id", "kind", "status", "priority", "attempts", "max_attempts", "created_by", "last_error",
    "created_at", "available_at", "started_at", "finished_at", "result",
)  # fmt: skip

# Read one job in the caller's scope.
READ_JOB = ScopedFunction(name="read_job", arguments=1, columns=COLUMNS)

# Lease due jobs, fairly between tenants.
LEASE = "SELECT * FROM lease_jobs(%s, %s, %s, make_interval(secs => %s), %s)"

# Extend leases and return those that are still held.
RENEW = "SELECT * FROM renew_leases(%s, %s, %s, make_interval(secs => %s))"

# Return jobs to the queue whose lease has expired.
REAP = "SELECT * FROM reap_leases(%s)"

# End one attempt if its lease is still held.
FINISH = "SELECT finish_job(%s, %s, %s, %s, %s, %s, %s) AS held"

# Write the change of a job by a caller to the audit log.
RECORD_CHANGE = text("SELECT record_event('job_control', :key, CAST(:details AS jsonb))")

# Update the state of what a job is about (a document, an extraction) to how the job ended.
UPDATE_SUBJECT = text("SELECT update_job_subject(:tenant, CAST(:job AS uuid), :status)")

# Whether a job of some kinds is open for a dedupe key.
HAS_OPEN = """
    SELECT EXISTS (
        SELECT FROM jobs j
        WHERE j.tenant_id = %(tenant)s AND j.project_id = %(project)s AND j.kind = ANY (%(kinds)s::text[])
          AND j.dedupe_key IN (%(key)s, %(key)s || ':next') AND j.status IN ('pending', 'leased')) AS open"""

# Enqueue maintenance for tenants with expired rows.
SCHEDULE_MAINTENANCE = "SELECT * FROM schedule_maintenance(%s)"

# Enqueue sealing for tenants whose audit log has new lines.
SCHEDULE_SEALS = "SELECT * FROM schedule_seals()"

# Enqueue decay for projects whose policies were not applied since then.
SCHEDULE_DECAY = "SELECT * FROM schedule_decay(%s)"

# Enqueue a refresh of trust for projects whose facts name sources and that had none since then.
SCHEDULE_TRUST = "SELECT * FROM schedule_trust(%s)"

# Enqueue embedding for projects that have something due.
SCHEDULE_EMBEDDINGS = "SELECT * FROM schedule_embeddings()"

# Enqueue reconciliation of vectors for projects that had none since then.
SCHEDULE_RECONCILIATIONS = "SELECT * FROM schedule_reconciliations(%s)"

# Enqueue retention for tenants that had none since then, or whose last run was incomplete.
SCHEDULE_RETENTION = "SELECT * FROM schedule_retention(%s)"

# Enqueue a maintenance cycle for projects with autonomous maintenance.
SCHEDULE_CYCLES = "SELECT * FROM schedule_cycles()"

_COLUMNS = [jobs.c[name] for name in COLUMNS]


async def insert_jobs(session: Session, *, rows: list[dict[str, Any]]) -> list[str]:
    """Insert jobs and return their ids, except those whose dedupe key is open already."""
    statement = insert(jobs).values(rows).on_conflict_do_nothing().returning(jobs.c.job_id)
    return [row["job_id"] for row in await session.rows(statement)]


async def find_open_job(
    session: Session, *, tenant_id: str, project_id: str | None, kind: str, dedupe_key: str
) -> str | None:
    """Return the id of the open job with this dedupe key, or None."""
    row = await session.row(
        select(jobs.c.job_id).where(
            jobs.c.tenant_id == tenant_id,
            jobs.c.project_id.is_not_distinct_from(project_id),
            jobs.c.kind == kind,
            jobs.c.dedupe_key == dedupe_key,
            jobs.c.status.in_(["pending", "leased"]),
        )
    )
    return None if row is None else row["job_id"]


def select_jobs(
    *, tenant_id: str, kind: str | None, status: str | None, after: tuple[datetime, str] | None, limit: int
) -> Any:
    """Return the statement that lists jobs of the scope, newest first."""
    c = jobs.c
    conditions = [c.tenant_id == tenant_id]
    if kind is not None:
        conditions.append(c.kind == kind)
    if status is not None:
        conditions.append(c.status == status)
    if after is not None:
        conditions.append(
            tuple_(c.created_at, c.job_id) < tuple_(literal(after[0]), literal(after[1], Uuid(as_uuid=False)))
        )
    return select(*_COLUMNS).where(and_(*conditions)).order_by(c.created_at.desc(), c.job_id.desc()).limit(limit)


async def lock_job(session: Session, *, tenant_id: str, job_id: str) -> dict[str, Any] | None:
    """Return one job, locked until the transaction ends, or None."""
    return await session.row(
        select(*_COLUMNS, jobs.c.agent_id)
        .where(jobs.c.tenant_id == tenant_id, jobs.c.job_id == job_id)
        .with_for_update()
    )


async def cancel_job(session: Session, *, tenant_id: str, job_id: str, now: datetime) -> dict[str, Any] | None:
    """Cancel an open job and return it, or None; a worker that holds it can no longer commit its effect."""
    return await session.row(
        update(jobs)
        .where(jobs.c.tenant_id == tenant_id, jobs.c.job_id == job_id, jobs.c.status.in_(["pending", "leased"]))
        .values(status="cancelled", lease_owner=None, lease_expires_at=None, finished_at=now)
        .returning(*_COLUMNS)
    )


async def retry_job(session: Session, *, tenant_id: str, job_id: str, now: datetime) -> dict[str, Any] | None:
    """Put an ended job back with no attempts and return it, or None; raise Conflict when its dedupe key is open."""
    try:
        return await session.row(
            update(jobs)
            .where(
                jobs.c.tenant_id == tenant_id,
                jobs.c.job_id == job_id,
                jobs.c.status.in_(["failed", "dead", "cancelled"]),
            )
            .values(status="pending", attempts=0, available_at=now, finished_at=None, started_at=None)
            .returning(*_COLUMNS)
        )
    except IntegrityError as problem:
        raise Conflict("Another job with the same dedupe key is already open.", code="job_already_open") from problem


async def complete_job(
    session: Session, *, tenant_id: str, job_id: str, owner: str, now: datetime, result: dict[str, Any] | None
) -> bool:
    """Complete a job in the transaction of its effect; return False when the lease is no longer held."""
    done = await session.execute(
        update(jobs)
        .where(
            jobs.c.tenant_id == tenant_id,
            jobs.c.job_id == job_id,
            jobs.c.status == "leased",
            jobs.c.lease_owner == owner,
        )
        .values(
            status="completed", lease_owner=None, lease_expires_at=None, last_error=None, finished_at=now, result=result
        )
    )
    return done.rowcount == 1


async def save_payload(session: Session, *, tenant_id: str, job_id: str, payload: dict[str, Any]) -> None:
    """Replace the payload of a job."""
    await session.execute(
        update(jobs).where(jobs.c.tenant_id == tenant_id, jobs.c.job_id == job_id).values(payload=payload)
    )


async def hold_job(session: Session, *, tenant_id: str, job_id: str, owner: str) -> bool:
    """Return whether the lease is held, and lock it until the transaction ends."""
    row = await session.row(
        select(jobs.c.job_id)
        .where(
            jobs.c.tenant_id == tenant_id,
            jobs.c.job_id == job_id,
            jobs.c.status == "leased",
            jobs.c.lease_owner == owner,
        )
        .with_for_update(read=True)
    )
    return row is not None
