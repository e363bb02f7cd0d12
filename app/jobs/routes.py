"""HTTP of the job queue."""

from typing import Annotated
from uuid import UUID

from litestar import Router, get, post
from litestar.params import FromPath, QueryParameter

from app.access import Principal, require_project
from app.jobs import service
from app.jobs.schemas import JobChanged, JobList, JobRead, Status
from app.paging import Page
from app.web.auth import Access
from app.web.requests import ApiRequest, Cursor, Cursors, Db, IncludeTotal, Limit, Who, admit, hot_path

READERS = ("notes:read", "facts:read", "graph:read", "admin")
WRITERS = ("notes:write", "facts:write", "graph:write", "admin")
READ = Access(work="read", scopes=READERS, project=False)
READ_HOT = Access(work="read", scopes=READERS, project=False, hot=True)
CHANGE = Access(work="write", scopes=WRITERS, project=False)


def _check_project(who: Principal) -> None:
    # An unbound admin key reads the jobs of all projects; an agent has to name a project.
    if not who.is_admin:
        require_project(who)


@get("/jobs", opt={"access": READ}, summary="List jobs", tags=["jobs"])
async def list_jobs(
    db: Db,
    who: Who,
    cursors: Cursors,
    kind: Annotated[str | None, QueryParameter(max_length=63, description="Only jobs of this kind.")] = None,
    status: Annotated[Status | None, QueryParameter(description="Only jobs in this state.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    include_total: IncludeTotal = False,
) -> JobList:
    """List the jobs of the project, newest first. An admin key bound to no project sees the jobs of all projects."""
    _check_project(who)
    page = Page(cursors, who, "jobs", limit=limit, cursor=cursor, include_total=include_total, kind=kind, status=status)
    return await service.list_jobs(db, who, kind=kind, status=status, page=page)


@get("/jobs/{job_id:uuid}", opt={"access": READ_HOT}, summary="Read a job", tags=["jobs"])
async def get_job(
    request: ApiRequest,
    job_id: FromPath[UUID],
) -> JobRead:
    """Return a job: whether it waits or runs, or how it ended."""
    hot = hot_path(request)
    who, job = await service.read_job(hot.call, job_id=job_id)
    await admit(request, READ_HOT, who, hot.limiter)
    _check_project(who)
    if job is None:
        raise service.job_not_found()
    return job


@post("/jobs/{job_id:uuid}/cancel", opt={"access": CHANGE}, status_code=200, summary="Cancel a job", tags=["jobs"])
async def cancel_job(
    db: Db,
    who: Who,
    job_id: FromPath[UUID],
) -> JobChanged:
    """Cancel a pending or running job. What a running attempt has done is rolled back. 409 once it has ended."""
    _check_project(who)
    return await service.cancel_job(db, who, job_id=job_id)


@post("/jobs/{job_id:uuid}/retry", opt={"access": CHANGE}, status_code=200, summary="Retry a job", tags=["jobs"])
async def retry_job(
    db: Db,
    who: Who,
    job_id: FromPath[UUID],
) -> JobChanged:
    """Put a failed, dead or cancelled job back into the queue and reset its attempts. 409 otherwise."""
    _check_project(who)
    return await service.retry_job(db, who, job_id=job_id)


router = Router(path="/", route_handlers=[list_jobs, get_job, cancel_job, retry_job])
