"""Wake-ups of workers: NOTIFY after a commit, at most every 50 ms per process, and LISTEN on a direct connection."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psycopg
import structlog

from app.errors import Unavailable

if TYPE_CHECKING:
    from app.db.database import Database

log: structlog.stdlib.BoundLogger = structlog.get_logger()

CHANNEL = "palimpsest_jobs"
PAUSE_SECONDS = 0.05


class Wakeups:
    """Throttled NOTIFY of one process, sent after commits, since inside a transaction it would serialise them."""

    def __init__(self, database: "Database", direct_conninfo: str) -> None:
        self._database = database
        self._direct_conninfo = direct_conninfo
        self._sending: asyncio.Task[None] | None = None
        self._again = False

    def soon(self) -> None:
        """Wake the workers now, or at the end of the current pause."""
        if self._sending is not None and not self._sending.done():
            self._again = True
            return
        self._sending = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        while True:
            self._again = False
            try:
                await self._database.call(f"NOTIFY {CHANNEL}")
            except (psycopg.Error, Unavailable) as problem:
                # Workers also poll, so a lost wake-up only delays a job.
                log.warning("wakeup_failed", error=type(problem).__name__)
            await asyncio.sleep(PAUSE_SECONDS)
            if not self._again:
                return

    async def listen(self, on_wake: Callable[[], Any]) -> None:
        """Call `on_wake` at every wake-up until cancelled, and reconnect when the connection is lost."""
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(self._direct_conninfo, autocommit=True) as connection:
                    await connection.execute(f"LISTEN {CHANNEL}".encode())
                    on_wake()
                    async for _ in connection.notifies():
                        on_wake()
            except psycopg.OperationalError as problem:
                log.warning("listen_lost", error=type(problem).__name__)
                await asyncio.sleep(1)

    async def close(self) -> None:
        """Wait briefly for a wake-up that is being sent."""
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=1)
