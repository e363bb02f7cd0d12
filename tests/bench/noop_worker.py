"""A worker whose jobs do nothing, so that the queue itself is what is measured."""

import asyncio

from app.config import read_settings
from app.jobs.registry import Job, Registry
from app.jobs.worker import Worker
from app.main import open_database


async def nothing(_: Job) -> None:
    """No effect: the worker completes the job."""


async def main() -> None:
    """Works until killed."""
    settings = read_settings()
    db = open_database(settings)
    await db.open()
    registry = Registry()
    registry.register("work", nothing)
    await Worker(db, registry, settings).run()


if __name__ == "__main__":
    try:
        import uvloop

        uvloop.run(main())
    except ImportError:
        asyncio.run(main())
