"""The job that seals the audit log."""

from app.audit import queries
from app.jobs.registry import Job, JobContext, Registry

SEALED_AT_ONCE = 2000


async def seal(job: Job) -> None:
    """Number and chain all events that are not sealed yet; concurrent jobs wait for each other."""
    while True:
        async with job.db.tenant(job.scope) as session:
            row = await session.row(queries.SEAL_AUDIT, {"limit": SEALED_AT_ONCE})
            assert row is not None
        if row["sealed"] < SEALED_AT_ONCE:
            return


def register_jobs(registry: Registry, _: JobContext) -> None:
    """Register the sealing of the audit log."""
    registry.register("seal", seal)
