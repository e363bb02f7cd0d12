"""The queue's own upkeep, as a job for each tenant."""

from datetime import UTC, datetime

from app.jobs import queries
from app.jobs.registry import Job
from app.jobs.worker import KEEP_FINISHED
from app.web.upkeep import clear_expired

BATCH = 5000


async def maintain(job: Job) -> None:
    """Clears away what has outlived its use: stored answers, idle rate windows, finished jobs."""
    now = datetime.now(UTC)
    tenant_id = job.scope.tenant_id
    while True:
        async with job.db.tenant(job.scope) as session:
            if (
                await queries.delete_finished(session, tenant_id=tenant_id, before=now - KEEP_FINISHED, limit=BATCH)
                < BATCH
            ):
                break
    async with job.finishing() as session:
        await clear_expired(session, tenant_id=tenant_id, now=now)
