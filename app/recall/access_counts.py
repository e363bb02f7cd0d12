"""How often facts are recalled, counted beside the read path and written now and then."""

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
# What is not written by then is left out: a count is no fact.
MOST_WAITING = 100_000


class AccessCounts:
    """Counts of this process, by tenant and project, until they are written."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._counts: dict[tuple[str, str], Counter[str]] = {}
        self._waiting = 0

    def note(self, tenant_id: str, project_id: str, facts: list[str]) -> None:
        """Counts what was just returned."""
        if self._waiting + len(facts) <= MOST_WAITING:
            self._counts.setdefault((tenant_id, project_id), Counter()).update(facts)
            self._waiting += len(facts)

    async def run(self) -> None:
        """Writes within half a minute, as long as the process lives."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Writes what was counted; what cannot be written now is kept for the next time."""
        counts, self._counts, self._waiting = self._counts, {}, 0
        now = datetime.now(UTC)
        for (tenant, project), counted in counts.items():
            facts = sorted(counted)
            params = {"facts": facts, "counts": [counted[fact] for fact in facts], "at": now}
            try:
                await self._db.query(Scope(tenant_id=tenant, project_id=project), queries.COUNT_ACCESSES, params)
            except (psycopg.Error, Unavailable) as problem:
                log.warning("accesses_not_counted", error=type(problem).__name__)
                self._counts.setdefault((tenant, project), Counter()).update(counted)
                self._waiting += sum(counted.values())
