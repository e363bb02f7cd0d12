"""Turns: writers of the same rows queue in the process, so that only one of them holds a connection to wait for a lock.

Writers in other processes still meet at the lock in the database, one from each process.
"""

import asyncio
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager

from app.admission import stepped_aside
from app.errors import write_contention

WAIT_SECONDS = 10.0


class Turns:
    """Locks by key, each held by one task at a time in the order of arrival."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def of(self, key: Hashable) -> AsyncGenerator[None]:
        """Run the block alone among those of this key; raise Unavailable when the turn does not come in time."""
        lock, users = self._locks.get(key, (None, 0))
        lock = lock or asyncio.Lock()
        self._locks[key] = lock, users + 1
        try:
            if lock.locked():
                await self._wait(lock)
            else:
                await lock.acquire()
            try:
                yield
            finally:
                lock.release()
        finally:
            _, users = self._locks.pop(key)
            if users > 1:
                self._locks[key] = lock, users - 1

    async def _wait(self, lock: asyncio.Lock) -> None:
        """Acquire a lock that is held, and let other requests run until then."""
        acquired = False
        try:
            async with stepped_aside(), asyncio.timeout(WAIT_SECONDS):
                acquired = await lock.acquire()
        except BaseException as problem:
            if acquired:
                lock.release()
            if isinstance(problem, TimeoutError):
                raise write_contention() from problem
            raise
