"""Use cases of the job queue: list, read, wait for, cancel and retry jobs."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from app.access import AuthenticatedCall, Principal
from app.admission import stepped_aside
from app.db.counts import COUNT_LIMIT
from app.db.database import Database, Row, Session
from app.errors import Conflict, Forbidden, NotFound
from app.jobs import queries
from app.jobs.schemas import JobChanged, JobList, JobRead
from app.paging import Page

# How often a waiting caller polls.
FIRST_POLL_SECONDS = 0.03
POLL_SECONDS = 0.25


def present(who: Principal, row: Row) -> JobRead:
    """Return a job; only its creator and admins see error messages, which can quote content."""
    fields: dict[str, Any] = {name: row[name] for name in queries.COLUMNS}
    if not who.is_admin and fields["created_by"] != who.key_id and fields["last_error"] is not None:
        fields["last_error"] = fields["last_error"].partition(":")[0]
    if not isinstance(fields["job_id"], UUID):
        fields["job_id"] = UUID(fields["job_id"])
    return JobRead(**fields)


async def read_job(call: AuthenticatedCall, *, job_id: UUID) -> tuple[Principal, JobRead | None]:
    """Authenticate the caller and return them with the job, or None when they cannot see it, in one round trip."""
    who, rows = await call(queries.READ_JOB, job_id)
    found = bool(rows) and rows[0]["job_id"] is not None
    return who, present(who, rows[0]) if found else None


async def list_jobs(db: Database, who: Principal, *, kind: str | None, status: str | None, page: Page) -> JobList:
    """Return a page of the jobs the caller can reach, newest first."""
    after = None if page.after is None else (datetime.fromisoformat(page.after[0]), page.after[1])
    place: dict[str, Any] = {"tenant_id": who.tenant_id, "kind": kind, "status": status}
    scope = who.across_projects()
    found = await db.fetch(scope, queries.select_jobs(**place, after=after, limit=page.limit + 1))
    rows, next_cursor = page.cut(found, key=lambda row: [row["created_at"].isoformat(), str(row["job_id"])])
    total = await page.count_rows(db, scope, queries.select_jobs(**place, after=None, limit=COUNT_LIMIT))
    return JobList(jobs=[present(who, row) for row in rows], next_cursor=next_cursor, total=total)


async def wait_until_done(
    db: Database, who: Principal, *, kinds: tuple[str, ...], dedupe_key: str, seconds: float
) -> bool:
    """Wait until no job of these kinds with this dedupe key is open; return False on timeout."""
    address = {"tenant": who.tenant_id, "project": who.project_id, "kinds": list(kinds), "key": dedupe_key}
    deadline = time.monotonic() + seconds
    pause = FIRST_POLL_SECONDS
    while True:
        (found,) = await db.query(who, queries.HAS_OPEN, address)
        left = deadline - time.monotonic()
        if not found["open"] or left <= 0:
            return not found["open"]
        async with stepped_aside():
            await asyncio.sleep(min(pause, left))
        pause = min(pause * 1.5, POLL_SECONDS)


async def cancel_job(db: Database, who: Principal, *, job_id: UUID) -> JobChanged:
    """Cancel an open job, whose running attempt can no longer commit, or raise NotFound, Forbidden or Conflict."""
    async with db.tenant(who.across_projects()) as session:
        await _check_may_change(session, who, job_id)
        row = await queries.cancel_job(session, tenant_id=who.tenant_id, job_id=str(job_id), now=datetime.now(UTC))
        if row is None:
            raise Conflict("Only a pending or leased job can be cancelled.", code="job_not_cancellable")
        await session.execute(queries.UPDATE_SUBJECT, {"tenant": who.tenant_id, "job": str(job_id), "status": None})
        await _record(session, who, "cancel", row)
        return JobChanged(job=present(who, row))


async def retry_job(db: Database, who: Principal, *, job_id: UUID) -> JobChanged:
    """Put a failed, dead or cancelled job back into the queue, or raise NotFound, Forbidden or Conflict."""
    async with db.tenant(who.across_projects()) as session:
        await _check_may_change(session, who, job_id)
        row = await queries.retry_job(session, tenant_id=who.tenant_id, job_id=str(job_id), now=datetime.now(UTC))
        if row is None:
            raise Conflict("Only a failed, dead or cancelled job can be retried.", code="job_not_retryable")
        await session.execute(queries.UPDATE_SUBJECT, {"tenant": who.tenant_id, "job": str(job_id), "status": None})
        await _record(session, who, "retry", row)
        session.wake_workers()
        return JobChanged(job=present(who, row))


async def _record(session: Session, who: Principal, action: str, job: Row) -> None:
    """Write the change of a job to the audit log."""
    details = msgspec.json.encode({"action": action, "job_id": str(job["job_id"]), "kind": job["kind"]}).decode()
    await session.execute(queries.RECORD_CHANGE, {"key": who.key_id, "details": details})


async def _check_may_change(session: Session, who: Principal, job_id: UUID) -> None:
    """Lock the job, or raise NotFound, or Forbidden unless it is the caller's own or they are an admin."""
    row = await queries.lock_job(session, tenant_id=who.tenant_id, job_id=str(job_id))
    if row is None:
        raise job_not_found()
    if not who.is_admin and row["agent_id"] != who.agent_id:
        raise Forbidden("Only the agent that created a job, or an admin key, can change it.", code="not_your_job")


def job_not_found() -> NotFound:
    """Return the same error for a job that is unknown, hidden or of another tenant."""
    return NotFound("There is no such job.", code="job_not_found")
