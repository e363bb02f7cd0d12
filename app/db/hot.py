"""Connections of the hot path: a small pool of autocommit connections, each call one prepared statement.

The driver's cursors cost more than the queries this serves. A call goes to libpq directly (through the driver's own
bindings, adapters and loaders): send, wait for the socket once, load the rows.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.pq.abc import PGresult

from app.errors import Unavailable

BUSY = "Every database connection is busy; try again shortly, or raise DATABASE_POOL_SIZE."
WAIT_SECONDS = 10.0
# A lost peer is noticed within half a minute instead of when TCP gives up.
CONNECTION_OPTIONS: dict[str, Any] = {
    "application_name": "palimpsest",
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
ROWS = (ExecStatus.TUPLES_OK, ExecStatus.SINGLE_TUPLE)

Row = dict[str, Any]


class StaleStatement(Exception):
    """A prepared statement no longer fits the schema; its connection is closed and the call can be repeated."""


class _Statement:
    """One query on one connection: its text, its loaders, and its prepared names by parameter types."""

    __slots__ = ("command", "formats", "names", "prepared", "transformer")

    def __init__(self, connection: AsyncConnection[Any], query: str) -> None:
        parts = query.split("%s")
        self.command = (
            "".join(f"{part}${number}" for number, part in enumerate(parts[:-1], start=1)).encode() + parts[-1].encode()
        )
        self.formats = [PyFormat.AUTO] * (len(parts) - 1)
        self.transformer = Transformer(connection)
        self.prepared: dict[tuple[int, ...], bytes] = {}
        self.names: list[str] | None = None

    def load(self, result: PGresult) -> list[Row]:
        """Return the rows of a result as dictionaries."""
        if result.status not in ROWS:
            return []
        if self.names is None:
            self.names = [(result.fname(number) or b"").decode() for number in range(result.nfields)]
        names = self.names
        self.transformer.set_pgresult(result)
        return self.transformer.load_rows(0, result.ntuples, lambda values: dict(zip(names, values, strict=True)))


class HotConnection:
    """One connection of the pool."""

    def __init__(self, connection: AsyncConnection[Any], *, prepared: bool) -> None:
        self.connection = connection
        self._pgconn = connection.pgconn
        self._prepared = prepared
        self._statements: dict[str, _Statement] = {}
        self._names = 0

    @property
    def usable(self) -> bool:
        """Whether another call can be made."""
        return self._pgconn.status == ConnStatus.OK

    async def close(self) -> None:
        """Close the connection."""
        await self.connection.close()

    async def run(self, query: str, params: Sequence[Any]) -> list[Row]:
        """Run a statement, in one round trip once it is prepared; `%s` is a parameter."""
        statement = self._statements.get(query)
        if statement is None:
            statement = self._statements[query] = _Statement(self.connection, query)
        transformer = statement.transformer
        values = transformer.dump_sequence(params, statement.formats)
        types, formats = transformer.types or (), transformer.formats
        try:
            if self._prepared:
                name = statement.prepared.get(types)
                if name is None:
                    name = await self._prepare(statement, types)
                self._pgconn.send_query_prepared(name, values, formats, 1)
            else:
                self._pgconn.send_query_params(statement.command, values, types, formats, 1)
            return statement.load(await self._result())
        except (asyncio.CancelledError, psycopg.OperationalError):
            # A result still in flight must not be taken for that of the next call.
            self._pgconn.finish()
            raise
        except (psycopg.errors.FeatureNotSupported, psycopg.errors.InvalidSqlStatementName) as problem:
            if not self._prepared:
                raise
            self._pgconn.finish()
            raise StaleStatement from problem

    async def _prepare(self, statement: _Statement, types: tuple[int, ...]) -> bytes:
        self._names += 1
        name = f"hot_{self._names}".encode()
        self._pgconn.send_prepare(name, statement.command, types)
        await self._result()
        statement.prepared[types] = name
        return name

    async def _result(self) -> PGresult:
        """Return the result of what was sent, or raise its error."""
        first: PGresult | None = None
        while self._pgconn.flush():
            await self._ready(writing=True)
        while True:
            while self._pgconn.is_busy():
                await self._ready(writing=False)
                self._pgconn.consume_input()
            result = self._pgconn.get_result()
            if result is None:
                break
            first = first or result
        if first is None:
            raise psycopg.OperationalError("the connection was lost")
        if first.status == ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(first)
        return first

    async def _ready(self, *, writing: bool) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        socket = self._pgconn.socket
        (loop.add_writer if writing else loop.add_reader)(socket, _settle, ready)
        try:
            await ready
        finally:
            (loop.remove_writer if writing else loop.remove_reader)(socket)


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


class HotPool:
    """A bounded pool that connects on demand and reuses the most recently used connection."""

    def __init__(self, conninfo: str, *, size: int, prepared: bool, tuned: bool) -> None:
        self._conninfo = conninfo
        self._prepared = prepared
        self._tuned = tuned
        self._slots = asyncio.Semaphore(size)
        self._idle: list[HotConnection] = []

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[HotConnection]:
        """Lend a connection for a block; a broken one is not kept."""
        taken = await self.take()
        try:
            yield taken
        finally:
            self.give(taken)

    async def take(self) -> HotConnection:
        """Return a connection that must be given back, or raise Unavailable when none is free in time."""
        if self._slots.locked():
            try:
                await asyncio.wait_for(self._slots.acquire(), WAIT_SECONDS)
            except TimeoutError as problem:
                raise Unavailable(BUSY) from problem
        else:
            await self._slots.acquire()
        while self._idle:
            idle = self._idle.pop()
            if idle.usable:
                return idle
            await idle.close()
        try:
            return await self._connect()
        except BaseException:
            self._slots.release()
            raise

    def give(self, connection: HotConnection) -> None:
        """Take a connection back."""
        if connection.usable:
            self._idle.append(connection)
        self._slots.release()

    async def _connect(self) -> HotConnection:
        made: AsyncConnection[Any] = await psycopg.AsyncConnection.connect(
            self._conninfo,
            autocommit=True,
            prepare_threshold=None,
            **CONNECTION_OPTIONS,
        )
        if self._tuned:
            # Statements here only call functions, which plan their own queries.
            try:
                await made.execute("SET plan_cache_mode = force_generic_plan")
            except BaseException:
                # Also when the request is cancelled now: nobody else knows of this connection.
                await made.close()
                raise
        return HotConnection(made, prepared=self._prepared)

    async def close_idle(self) -> None:
        """Close the idle connections, which are useless after a restart of the server."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()
