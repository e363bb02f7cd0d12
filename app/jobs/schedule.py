"""The schedule: which recurring jobs each worker enqueues, and how often it looks."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from app.db.database import Database
from app.jobs import queries

SCHEDULE_SECONDS = 60.0
# Lines of the audit log must be sealed within five seconds.
SEAL_SECONDS = 1.5
EMBED_SECONDS = 1.0
DECAY_EVERY = timedelta(hours=1)
TRUST_EVERY = timedelta(days=1)
RECONCILE_EVERY = timedelta(days=1)
RETAIN_EVERY = timedelta(hours=6)
RATE_WINDOW_IDLE = timedelta(days=1)
RATE_SLOT_SECONDS = 2


def idle_slot(now: datetime) -> int:
    """Return the slot of a rate window before which the window counts as idle."""
    return int((now - RATE_WINDOW_IDLE).timestamp() // RATE_SLOT_SECONDS)


async def enqueue_recurring(db: Database) -> bool:
    """Enqueue maintenance, decay, trust, reconciliation, retention and repair cycles that are due; True if any was."""
    now = datetime.now(UTC)
    calls = (
        (queries.SCHEDULE_MAINTENANCE, (idle_slot(now),)),
        (queries.SCHEDULE_DECAY, (now - DECAY_EVERY,)),
        (queries.SCHEDULE_TRUST, (now - TRUST_EVERY,)),
        (queries.SCHEDULE_RECONCILIATIONS, (now - RECONCILE_EVERY,)),
        (queries.SCHEDULE_RETENTION, (now - RETAIN_EVERY,)),
        (queries.SCHEDULE_CYCLES, ()),
    )
    enqueued = False
    for query, arguments in calls:
        enqueued = bool(await db.call(query, arguments)) or enqueued
    return enqueued


async def enqueue_seals(db: Database) -> bool:
    """Enqueue the sealing of audit logs that have new lines; True if there was any."""
    return bool(await db.call(queries.SCHEDULE_SEALS))


async def enqueue_embeddings(db: Database) -> bool:
    """Enqueue embedding for projects that have something due; True if there was any."""
    return bool(await db.call(queries.SCHEDULE_EMBEDDINGS))


SCHEDULE: tuple[tuple[float, Callable[[Database], Awaitable[bool]]], ...] = (
    (SCHEDULE_SECONDS, enqueue_recurring),
    (SEAL_SECONDS, enqueue_seals),
    (EMBED_SECONDS, enqueue_embeddings),
)
