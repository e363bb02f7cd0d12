"""Use cases of the queue: list, read, cancel, retry."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from app.access import Principal
from app.db.database import Database, Row
from app.errors import Conflict, Forbidden, NotFound
from app.jobs import queries
from app.jobs.schemas import JobList, JobRead
from app.paging import Page
from app.web.auth import Authenticator, Credentials

# How often somebody who waits has a look.
FIRST_LOOK_SECONDS = 0.03
LOOK_SECONDS = 0.25


def present(who: Principal, row: Row) -> JobRead:
    """A job as this caller may see it: an error's words may quote content, so they are for its maker and admins."""
    shown: dict[str, Any] = {name: row[name] for name in queries.COLUMNS}
    if not who.is_admin and shown["created_by"] != who.key_id and shown["last_error"] is not None:
        shown["last_error"] = shown["last_error"].partition(":")[0]
    if not isinstance(shown["job_id"], UUID):
        shown["job_id"] = UUID(shown["job_id"])
    return JobRead(**shown)


async def read_job(
    authenticator: Authenticator, credentials: Credentials, *, job_id: UUID
) -> tuple[Principal, JobRead | None]:
    """Who asks, and the job if they can see it: authentication, scope and answer in one round trip."""
    who, rows = await authenticator.hot(queries.READ_JOB, credentials, job_id)
    found = bool(rows) and rows[0]["job_id"] is not None
    return who, present(who, rows[0]) if found else None


async def list_jobs(db: Database, who: Principal, *, kind: str | None, status: str | None, page: Page) -> JobList:
    """Jobs in the caller's reach, newest first."""
    after = None if page.after is None else (datetime.fromisoformat(page.after[0]), page.after[1])
    statement = queries.select_jobs(
        tenant_id=who.tenant_id, kind=kind, status=status, after=after, limit=page.limit + 1
    )
    rows, next_cursor = page.cut(
        await db.fetch(who.across_projects(), statement),
        key=lambda row: [row["created_at"].isoformat(), str(row["job_id"])],
    )
    return JobList(jobs=[present(who, row) for row in rows], next_cursor=next_cursor)


async def wait_until_done(
    db: Database, who: Principal, *, kinds: tuple[str, ...], dedupe_key: str, seconds: float
) -> bool:
    """Waits until no job of these kinds about this is open any more; false when the time was over first."""
    address = {"tenant": who.tenant_id, "project": who.project_id, "kinds": list(kinds), "key": dedupe_key}
    ends = time.monotonic() + seconds
    pause = FIRST_LOOK_SECONDS
    while True:
        (found,) = await db.query(who, queries.HAS_OPEN, address)
        left = ends - time.monotonic()
        if not found["open"] or left <= 0:
            return not found["open"]
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 1.5, LOOK_SECONDS)


async def cancel_job(db: Database, who: Principal, *, job_id: UUID) -> JobRead:
    """Cancels an open job; an attempt under way can no longer commit."""
    async with db.tenant(who.across_projects()) as session:
        await _find_mine(session, who, job_id)
        row = await queries.cancel_job(session, tenant_id=who.tenant_id, job_id=str(job_id), now=datetime.now(UTC))
        if row is None:
            raise Conflict("Only a pending or leased job can be cancelled.", code="job_not_cancellable")
        await session.execute(queries.FOLLOW, {"tenant": who.tenant_id, "job": str(job_id), "status": None})
        return present(who, row)


async def retry_job(db: Database, who: Principal, *, job_id: UUID) -> JobRead:
    """Puts a failed, dead or cancelled job back into the queue."""
    async with db.tenant(who.across_projects()) as session:
        await _find_mine(session, who, job_id)
        row = await queries.retry_job(session, tenant_id=who.tenant_id, job_id=str(job_id), now=datetime.now(UTC))
        if row is None:
            raise Conflict("Only a failed, dead or cancelled job can be retried.", code="job_not_retryable")
        await session.execute(queries.FOLLOW, {"tenant": who.tenant_id, "job": str(job_id), "status": None})
        session.wake_workers()
        return present(who, row)


async def _find_mine(session: Any, who: Principal, job_id: UUID) -> None:
    row = await queries.lock_job(session, tenant_id=who.tenant_id, job_id=str(job_id))
    if row is None:
        raise job_not_found()
    if not who.is_admin and row["agent_id"] != who.agent_id:
        raise Forbidden("Only the agent that made a job, or an admin key, may change it.", code="not_your_job")


def job_not_found() -> NotFound:
    """The one answer for a job that is unknown, hidden or of another tenant."""
    return NotFound("There is no such job.", code="job_not_found")
