"""The edge's own upkeep, as a job for each tenant."""

from datetime import UTC, datetime

from app.jobs.registry import Job
from app.web.upkeep import clear_expired


async def maintain(job: Job) -> None:
    """Clears away stored answers and idle rate windows; what is old goes by retention."""
    async with job.finishing() as session:
        await clear_expired(session, tenant_id=job.scope.tenant_id, now=datetime.now(UTC))
