"""Handlers by kind of job, with how each kind is retried."""

import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from app.config import Settings
from app.db.database import Database, Session
from app.db.scope import CROSS_PROJECT, Scope
from app.errors import AppError
from app.jobs import queries

MAX_ERROR = 1000
DEFAULT_BACKOFF = (2.0, 10.0, 60.0, 300.0, 900.0)


class PermanentFailure(Exception):
    """Trying again cannot help: the job fails at once."""


class Postponed(Exception):
    """Its time has not come: the job goes back to the queue until then, as if it had never been leased."""

    def __init__(self, until: datetime) -> None:
        super().__init__(f"not before {until.isoformat()}")
        self.until = until


class LeaseLost(Exception):
    """Somebody else has the job now, or it was cancelled: what this attempt did is rolled back."""


def error_text(problem: Exception) -> str:
    """What a job keeps of why an attempt failed: a stable code, and the words."""
    code = problem.code if isinstance(problem, AppError) else type(problem).__qualname__
    return f"{code}: {problem}"


class Job:
    """One attempt at one job, in its own tenant's scope."""

    def __init__(self, db: Database, owner: str, row: dict[str, Any]) -> None:
        self.db = db
        self.owner = owner
        self.job_id = str(row["job_id"])
        self.kind: str = row["kind"]
        self.payload: dict[str, Any] = row["payload"]
        self.attempt: int = row["attempts"]
        self.max_attempts: int = row["max_attempts"]
        self.waited: float = row["waited"].total_seconds()
        self.scope = Scope(
            tenant_id=row["tenant_id"],
            project_id=row["project_id"],
            agent_id=row["agent_id"],
            reach="" if row["project_id"] else CROSS_PROJECT,
        )
        self.ended = False
        self.result: dict[str, Any] | None = None
        """What came of it, for whoever follows the job; never content."""

    @asynccontextmanager
    async def holding(self) -> AsyncGenerator[Session]:
        """A transaction of a part of the job's effect: it commits only while the job is still in our hands."""
        async with self.db.tenant(self.scope) as session:
            yield session
            # At the end, because heartbeats wait for it.
            if not await queries.hold_job(
                session, tenant_id=self.scope.tenant_id, job_id=self.job_id, owner=self.owner
            ):
                raise LeaseLost

    def follow_up(self, job_id: str, kind: str, *, payload: dict[str, Any], max_attempts: int) -> "Job":
        """Another job of the same scope, which was made in our hands."""
        row = {
            "job_id": job_id,
            "kind": kind,
            "payload": payload,
            "attempts": 1,
            "max_attempts": max_attempts,
            "waited": timedelta(0),
            "tenant_id": self.scope.tenant_id,
            "project_id": self.scope.project_id,
            "agent_id": self.scope.agent_id,
        }
        return Job(self.db, self.owner, row)

    async def settle(self, session: Session, status: str) -> None:
        """Tells what the job is about how it ends, as part of its transaction."""
        place = {"tenant": self.scope.tenant_id, "job": self.job_id, "status": status}
        await session.execute(queries.FOLLOW, place)

    async def give_back(self, problem: Exception, *, seconds: float) -> None:
        """Lets the queue try it again a little later."""
        until = datetime.now(UTC) + timedelta(seconds=seconds)
        await self.finish("pending", error=error_text(problem), available_at=until)

    async def finish(self, status: str, *, error: str | None = None, available_at: datetime | None = None) -> bool:
        """Ends this attempt, by itself; false when the lease is no longer held."""
        message = None
        if error is not None:
            # What an error says may hold anything; what is stored is text.
            message = error.replace("\0", "").encode(errors="replace").decode()[:MAX_ERROR]
        place = (self.scope.tenant_id, self.scope.project_id, UUID(self.job_id), self.owner)
        (row,) = await self.db.call(queries.FINISH, (*place, status, message, available_at))
        return row["held"]

    @asynccontextmanager
    async def finishing(self) -> AsyncGenerator[Session]:
        """The transaction of the job's effect, which also completes it: both happen, or neither does."""
        async with self.db.tenant(self.scope) as session:
            yield session
            held = await queries.complete_job(
                session,
                tenant_id=self.scope.tenant_id,
                job_id=self.job_id,
                owner=self.owner,
                now=datetime.now(UTC),
                result=self.result,
            )
            if not held:
                raise LeaseLost
        self.ended = True


Handler = Callable[[Job], Awaitable[None]]


class JobContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a domain builds its job handlers from."""

    db: Database
    settings: Settings
    embedders: Any
    """The Embedders of this process; named by no type here, since the domain that owns it stands above jobs."""


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """A handler and its way of retrying."""

    handler: Handler
    backoff: tuple[float, ...] = DEFAULT_BACKOFF

    def delay(self, attempt: int) -> float:
        """Seconds until the next attempt, with a fifth of jitter so that failures do not march in step."""
        base = self.backoff[min(attempt, len(self.backoff)) - 1]
        return base * random.uniform(0.8, 1.2)  # noqa: S311


class Registry:
    """Which handler does which kind."""

    def __init__(self) -> None:
        self._handlers: dict[str, Registered] = {}

    def register(self, kind: str, handler: Handler, *, backoff: tuple[float, ...] = DEFAULT_BACKOFF) -> None:
        """Adds the handler of a kind; a kind has one."""
        if kind in self._handlers:
            raise ValueError(f"two handlers for jobs of kind {kind}")
        self._handlers[kind] = Registered(handler=handler, backoff=backoff)

    def __getitem__(self, kind: str) -> Registered:
        return self._handlers[kind]

    def is_busy(self, kind: str) -> bool:
        """Return whether the handler of a kind says that it has much to do in this process."""
        registered = self._handlers.get(kind)
        busy: Callable[[], bool] | None = getattr(registered and registered.handler, "is_busy", None)
        return busy is not None and busy()

    @property
    def kinds(self) -> list[str]:
        """The kinds this process can do: it leases no others."""
        return sorted(self._handlers)
