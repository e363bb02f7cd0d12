"""Database: transactions and single statements on PostgreSQL.

`tenant()` and `system()` open a transaction through SQLAlchemy Core, which commits at the end and rolls back on errors.
`call()` runs one statement on an autocommit connection in one round trip, for the hot path.
`fetch()` sets the scope and runs one read in a single message, which PostgreSQL treats as one transaction.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import psycopg
import structlog
from psycopg import AsyncClientCursor, AsyncConnection
from psycopg.rows import dict_row
from sqlalchemy import CursorResult, Executable, text
from sqlalchemy.dialects.postgresql.psycopg import dialect as psycopg_dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as EngineTimeout
from sqlalchemy.ext.asyncio import AsyncConnection as EngineConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.sql import ClauseElement

from app.db.hot import BUSY, CONNECTION_OPTIONS, HotConnection, HotPool, Row, StaleStatement
from app.db.server import check_version
from app.db.turns import Turns
from app.db.wakeups import Wakeups
from app.errors import Unavailable

log: structlog.stdlib.BoundLogger = structlog.get_logger()

SET_SCOPE = text("SELECT set_scope(:tenant, :project, :agent, CAST(:gardens AS uuid[]), :reach, :user)")
SET_SCOPE_INLINE = "SELECT set_scope(%s, %s, %s, %s::uuid[], %s, %s)"
UNREACHABLE = "The database cannot be reached; try again shortly."


class Scoped(Protocol):
    """Anything with a scope."""

    def arguments(self) -> tuple[str, str, str, list[str], str, str]: ...


def scope_parameters(who: Scoped) -> dict[str, Any]:
    """Return the parameters of SET_SCOPE."""
    return dict(zip(("tenant", "project", "agent", "gardens", "reach", "user"), who.arguments(), strict=True))


class Session:
    """One open transaction; workers are notified only after it has committed."""

    def __init__(self, connection: EngineConnection, wakeups: Wakeups) -> None:
        self.connection = connection
        self._wakeups = wakeups
        self._after_commit: list[Callable[[], None]] = []

    async def execute(self, statement: Executable, params: Any = None) -> CursorResult[Any]:
        """Run one statement of this transaction."""
        return await self.connection.execute(statement, params)

    async def rows(self, statement: Executable, params: Any = None) -> list[Row]:
        """Return all rows of a statement as dictionaries."""
        return [dict(row) for row in (await self.execute(statement, params)).mappings()]

    async def row(self, statement: Executable, params: Any = None) -> Row | None:
        """Return the only row of a statement, or None."""
        found = (await self.execute(statement, params)).mappings().one_or_none()
        return None if found is None else dict(found)

    async def query(self, query: str, params: dict[str, Any]) -> list[Row]:
        """Return all rows of a statement given as text, with `%(name)s` for parameters."""
        return [dict(row) for row in (await self.connection.exec_driver_sql(query, params)).mappings()]

    async def enter(self, who: Scoped) -> None:
        """Change the scope of the transaction, for work of a tenant in one of its projects."""
        await self.execute(SET_SCOPE, scope_parameters(who))

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Run a callback once the commit is durable, and never otherwise."""
        self._after_commit.append(callback)

    def wake_workers(self) -> None:
        """Notify the workers once, after the commit."""
        if self._wakeups.soon not in self._after_commit:
            self._after_commit.append(self._wakeups.soon)

    def committed(self) -> None:
        """Run what was deferred until after the commit; called by the Database."""
        for callback in self._after_commit:
            callback()


class Database:
    """The connections of one process as one role."""

    def __init__(
        self, conninfo: str, *, direct_conninfo: str | None = None, pool_size: int = 8, prepared: bool = True
    ) -> None:
        self.conninfo = conninfo
        self._prepare_threshold = 5 if prepared else None
        self.turns = Turns()
        self.wakeups = Wakeups(self, direct_conninfo or conninfo)
        self._engine: AsyncEngine = create_async_engine(
            "postgresql+psycopg://",
            async_creator=self._connect,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=10,
            pool_reset_on_return="rollback",
            hide_parameters=True,
        )
        # Behind a pooler a session setting would leak to the next user of the connection.
        tuned = prepared and direct_conninfo is None
        self._pool = HotPool(conninfo, size=pool_size, prepared=prepared, tuned=tuned)
        self._dialect = psycopg_dialect()

    async def _connect(self) -> AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(
            self.conninfo, prepare_threshold=self._prepare_threshold, **CONNECTION_OPTIONS
        )

    async def open(self) -> None:
        """Connect once, or raise Unavailable with the reason, or StartupError for a server that is too old."""
        try:
            async with self._pool.connection() as hot:
                check_version(hot.connection.info)
        except psycopg.OperationalError as problem:
            reason = (str(problem).strip().splitlines() or ["no answer"])[-1].strip()
            raise Unavailable(f"The database cannot be reached: {reason}") from problem

    async def close(self) -> None:
        """Close every connection."""
        await self.wakeups.close()
        await self._pool.close_idle()
        await self._engine.dispose()

    @asynccontextmanager
    async def tenant(self, who: Scoped) -> AsyncGenerator[Session]:
        """Open a transaction in the scope of `who`, which commits at the end and rolls back on any error."""
        connection = await self._begin(who)
        async with self._finishing(connection) as session:
            yield session

    @asynccontextmanager
    async def system(self) -> AsyncGenerator[Session]:
        """Open a transaction without a scope, in which tenant tables look empty except to definer functions."""
        connection = await self._begin(None)
        async with self._finishing(connection) as session:
            yield session

    async def _begin(self, who: Scoped | None) -> EngineConnection:
        # A pooled connection may have died with a server restart. Nothing has run yet, so retry once on a new one.
        for attempt in (1, 2):
            try:
                return await self._begin_once(who)
            except EngineTimeout as problem:
                raise Unavailable(BUSY) from problem
            except (DBAPIError, psycopg.OperationalError) as problem:
                if attempt == 2 or not _is_disconnect(problem):
                    raise _as_unavailable(problem) from problem
        raise AssertionError("unreachable")

    async def _begin_once(self, who: Scoped | None) -> EngineConnection:
        connection = await self._engine.connect().start()
        try:
            if who is not None:
                await connection.execute(SET_SCOPE, scope_parameters(who))
        except BaseException:
            await asyncio.shield(connection.close())
            raise
        return connection

    @asynccontextmanager
    async def _finishing(self, connection: EngineConnection) -> AsyncGenerator[Session]:
        session = Session(connection, self.wakeups)
        try:
            try:
                yield session
                await connection.commit()
            except DBAPIError as problem:
                if problem.connection_invalidated or _is_disconnect(problem):
                    raise Unavailable(UNREACHABLE) from problem
                raise
        finally:
            # Shielded, so that a cancelled request still returns its connection.
            await asyncio.shield(connection.close())
        session.committed()

    @asynccontextmanager
    async def autocommit(self) -> AsyncGenerator[AsyncConnection[Any]]:
        """Lend a driver connection of the hot pool, in autocommit mode."""
        async with self._pool.connection() as hot:
            yield hot.connection

    async def call(self, query: str, params: Sequence[Any] = (), *, again: bool = True) -> list[Row]:
        """Run one statement in one round trip; `again` is false for statements that must not run twice."""
        return await self._retried(lambda hot: hot.run(query, params), again=again)

    async def fetch(self, who: Scoped, statement: ClauseElement) -> list[Row]:
        """Run one read in the scope of `who`, in one round trip."""
        compiled = statement.compile(dialect=self._dialect, compile_kwargs={"render_postcompile": True})
        return await self.query(who, str(compiled), dict(compiled.params or {}))

    async def query(self, who: Scoped, query: str, params: dict[str, Any]) -> list[Row]:
        """Run one read given as text in the scope of `who`, for statements that are slow to compile."""

        async def read(hot: HotConnection) -> list[Row]:
            async with AsyncClientCursor(hot.connection, row_factory=dict_row) as cursor:
                scope = cursor.mogrify(SET_SCOPE_INLINE, who.arguments())
                await cursor.execute(f"{scope}; {cursor.mogrify(query.encode(), params)}".encode())
                cursor.nextset()
                return await cursor.fetchall()

        return await self._retried(read)

    async def _retried(self, run: Callable[[HotConnection], Awaitable[list[Row]]], *, again: bool = True) -> list[Row]:
        """Run, and retry once on a new connection when the first was dead or its statements were stale."""
        for attempt in (1, 2):
            try:
                hot = await self._pool.take()
                try:
                    return await run(hot)
                finally:
                    self._pool.give(hot)
            except StaleStatement:
                # A migration changed the result type of a statement, which failed before it ran.
                if attempt == 2:
                    raise
            except psycopg.OperationalError as problem:
                if not _is_disconnect(problem):
                    raise
                if attempt == 2 or not again:
                    raise Unavailable(UNREACHABLE) from problem
                await self._pool.close_idle()
        raise AssertionError("unreachable")


def _is_disconnect(problem: BaseException) -> bool:
    cause = problem.orig if isinstance(problem, DBAPIError) else problem
    if not isinstance(cause, psycopg.OperationalError):
        return False
    # 57P0x: the server shuts down or starts up; 08xxx and no state at all: the connection itself broke;
    # 53300: it has too many connections.
    return cause.sqlstate is None or cause.sqlstate.startswith(("08", "57P0", "53300"))


def _as_unavailable(problem: Exception) -> Exception:
    return Unavailable(UNREACHABLE) if _is_disconnect(problem) else problem
