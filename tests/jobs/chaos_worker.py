"""A worker process whose handler leaves one row for each effect, to be killed at any moment."""

import asyncio
import sys

from sqlalchemy import text

from app.config import read_settings
from app.jobs.registry import Job, Registry
from app.jobs.worker import Worker
from app.main import open_database

EFFECT = text("INSERT INTO effects (job_id, tenant, happened_at) VALUES (:job_id, :tenant, clock_timestamp())")


async def leave_a_row(job: Job) -> None:
    """The effect and the completion of the job are one transaction."""
    async with job.finishing() as session:
        await session.execute(EFFECT, {"job_id": job.job_id, "tenant": job.scope.tenant_id})


async def main() -> None:
    """Works until killed."""
    settings = read_settings()
    db = open_database(settings)
    await db.open()
    registry = Registry()
    registry.register("effect", leave_a_row)
    await Worker(db, registry, settings).run()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
