"""Retry a write whose transaction lost against a concurrent one, so that callers never see the conflict."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import psycopg
import structlog
from sqlalchemy.exc import DBAPIError

from app.errors import write_contention

log: structlog.stdlib.BoundLogger = structlog.get_logger()

ATTEMPTS = 8
FIRST_PAUSE_SECONDS = 0.005
# A deadlock, a name that was given to something else, or a row that another writer made or removed in between.
RETRYABLE_ERRORS = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.UniqueViolation,
    psycopg.errors.ForeignKeyViolation,
)

Result = TypeVar("Result")


async def retried(write: Callable[[], Awaitable[Result]]) -> Result:
    """Run a whole transaction, again when it lost against another; raise Unavailable when it keeps losing."""
    for attempt in range(ATTEMPTS):
        try:
            return await write()
        except (DBAPIError, psycopg.Error) as problem:
            cause = problem.orig if isinstance(problem, DBAPIError) else problem
            if not isinstance(cause, RETRYABLE_ERRORS):
                raise
            log.info("write_retried", attempt=attempt + 1, state=cause.sqlstate, constraint=cause.diag.constraint_name)
            # Not for secrecy: spread the writers so that they do not conflict again at the same moment.
            await asyncio.sleep(FIRST_PAUSE_SECONDS * 2**attempt * random.uniform(0.5, 1.5))  # noqa: S311
    log.error("write_given_up", attempts=ATTEMPTS)
    raise write_contention()
