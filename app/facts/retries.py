"""Writers that met at the same rows: the loser's transaction is made again, so that callers never see it."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import psycopg
import structlog
from sqlalchemy.exc import DBAPIError

from app.errors import Unavailable

log: structlog.stdlib.BoundLogger = structlog.get_logger()

ATTEMPTS = 8
FIRST_PAUSE_SECONDS = 0.005
# A deadlock, a name that changed its meaning, or a row that another writer made or removed in between.
MEETINGS = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.UniqueViolation,
    psycopg.errors.ForeignKeyViolation,
)

Result = TypeVar("Result")


async def retried(write: Callable[[], Awaitable[Result]]) -> Result:
    """Makes a whole transaction, again when it lost against another."""
    for attempt in range(ATTEMPTS):
        try:
            return await write()
        except (psycopg.Error, DBAPIError) as problem:
            cause = problem.orig if isinstance(problem, DBAPIError) else problem
            if not isinstance(cause, MEETINGS):
                raise
            log.info("write_retried", attempt=attempt + 1, state=cause.sqlstate, constraint=cause.diag.constraint_name)
            # Not for secrecy: two that met once shall not meet again at the same moment.
            await asyncio.sleep(FIRST_PAUSE_SECONDS * 2**attempt * random.uniform(0.5, 1.5))  # noqa: S311
    # Nobody should ever get here; if a rule of ours cannot be kept, it is told as the mistake it is.
    log.error("write_given_up", attempts=ATTEMPTS)
    raise Unavailable("Too many writers at the same facts; try again shortly.", code="write_contention")
