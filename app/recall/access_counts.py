"""Access counts: how often facts are recalled, counted in memory and written in batches."""

import asyncio
from collections import Counter
from datetime import UTC, datetime

import psycopg
import structlog

from app.db.database import Database
from app.db.scope import Scope
from app.errors import Unavailable
from app.recall import queries

log: structlog.stdlib.BoundLogger = structlog.get_logger()

FLUSH_SECONDS = 20.0
# Bounds memory while the database is away; counts beyond it are dropped, since they only refine the ranking.
MAX_PENDING = 100_000


class AccessCounts:
    """The counts of this process that are not written yet, by tenant and project."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._counts: dict[tuple[str, str], Counter[str]] = {}
        self._pending = 0

    def add(self, tenant_id: str, project_id: str, facts: list[str]) -> None:
        """Count facts that were just returned."""
        if self._pending + len(facts) <= MAX_PENDING:
            self._counts.setdefault((tenant_id, project_id), Counter()).update(facts)
            self._pending += len(facts)

    async def run(self) -> None:
        """Write the counts every FLUSH_SECONDS until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Write the counts; keep those that cannot be written for the next time."""
        counts, self._counts, self._pending = self._counts, {}, 0
        now = datetime.now(UTC)
        for (tenant, project), counted in counts.items():
            facts = sorted(counted)
            params = {"facts": facts, "counts": [counted[fact] for fact in facts], "at": now}
            try:
                await self._db.query(Scope(tenant_id=tenant, project_id=project), queries.COUNT_ACCESSES, params)
            except (psycopg.Error, Unavailable) as problem:
                log.warning("accesses_not_counted", error=type(problem).__name__)
                self._counts.setdefault((tenant, project), Counter()).update(counted)
                self._pending += sum(counted.values())
