"""Retention: purges rows that were deleted or finished long enough ago, in a fixed order and in batches."""

from datetime import UTC, datetime, timedelta
from typing import Self

import msgspec

from app.config import Settings
from app.db.database import Database, Row
from app.db.scope import Scope
from app.maintenance import queries

BATCH = 500


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """For how many days rows are kept after their end."""

    deleted: int = 30
    history: int = 180
    finished_jobs: int = 14
    failed_jobs: int = 30
    records: int = 90

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the retention of a deployment."""
        return cls(
            deleted=settings.retention_deleted_days,
            history=settings.retention_history_days,
            finished_jobs=settings.retention_finished_jobs_days,
            failed_jobs=settings.retention_failed_jobs_days,
            records=settings.retention_records_days,
        )


# The fields of Retention are for how long each is kept. Links before vectors before notes, so that no row refers to a
# purged one.
STEPS: tuple[tuple[str, str, str, Row], ...] = (
    ("links", queries.PURGE_LINKS, "deleted", {}),
    ("vectors", queries.PURGE_VECTORS, "deleted", {}),
    ("notes", queries.PURGE_NOTES, "deleted", {}),
    ("objects", queries.PURGE_OBJECTS, "deleted", {}),
    ("history", queries.PURGE_HISTORY, "history", {}),
    ("finished_jobs", queries.PURGE_RECORDS, "finished_jobs", {"what": "finished_jobs"}),
    ("lost_jobs", queries.PURGE_RECORDS, "failed_jobs", {"what": "lost_jobs"}),
    ("calls", queries.PURGE_RECORDS, "records", {"what": "calls"}),
    ("repairs", queries.PURGE_RECORDS, "records", {"what": "repairs"}),
)


async def sweep(db: Database, who: Scope, *, retention: Retention | None = None, now: datetime | None = None) -> Row:
    """Purge a tenant, or one project of it; return the counts, and whether a step reached its limit of 500 rows.

    Each step is a short transaction of its own.
    """
    moment, kept_for = now or datetime.now(UTC), retention or Retention()
    counts: Row = {}
    for name, query, kept, more in STEPS:
        (row,) = await db.query(
            who, query, {"before": moment - timedelta(days=getattr(kept_for, kept)), "limit": BATCH, **more}
        )
        counts |= {name: row["purged"]} if "purged" in row else row
    return {**counts, "full": any(count >= BATCH for count in counts.values())}
