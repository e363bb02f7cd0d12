"""Retention: purges rows that were deleted or finished long enough ago, in a fixed order and in batches."""

from datetime import UTC, datetime, timedelta

from app.db.database import Database, Row
from app.db.scope import Scope
from app.maintenance import queries

BATCH = 500
KEEP_DELETED = timedelta(days=30)
KEEP_HISTORY = timedelta(days=180)
KEEP_FINISHED_JOBS = timedelta(days=14)
KEEP_LOST_JOBS = timedelta(days=30)
KEEP_RECORDS = timedelta(days=90)

# Links before vectors before notes, so that no row refers to a purged one.
STEPS: tuple[tuple[str, str, timedelta, Row], ...] = (
    ("links", queries.PURGE_LINKS, KEEP_DELETED, {}),
    ("vectors", queries.PURGE_VECTORS, KEEP_DELETED, {}),
    ("notes", queries.PURGE_NOTES, KEEP_DELETED, {}),
    ("history", queries.PURGE_HISTORY, KEEP_HISTORY, {}),
    ("finished_jobs", queries.PURGE_RECORDS, KEEP_FINISHED_JOBS, {"what": "finished_jobs"}),
    ("lost_jobs", queries.PURGE_RECORDS, KEEP_LOST_JOBS, {"what": "lost_jobs"}),
    ("calls", queries.PURGE_RECORDS, KEEP_RECORDS, {"what": "calls"}),
    ("repairs", queries.PURGE_RECORDS, KEEP_RECORDS, {"what": "repairs"}),
)


async def sweep(db: Database, who: Scope, *, now: datetime | None = None) -> Row:
    """Purge a tenant, or one project of it; return the counts, and whether a step reached its limit of 500 rows.

    Each step is a short transaction of its own.
    """
    moment = now or datetime.now(UTC)
    counts: Row = {}
    for name, query, kept, more in STEPS:
        (row,) = await db.query(who, query, {"before": moment - kept, "limit": BATCH, **more})
        counts |= {name: row["purged"]} if "purged" in row else row
    return {**counts, "full": any(count >= BATCH for count in counts.values())}
