"""Job handlers by kind with their retry policy, and the attempt that a handler receives."""

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

MAX_ERROR_LENGTH = 1000
DEFAULT_BACKOFF = (2.0, 10.0, 60.0, 300.0, 900.0)


class PermanentFailure(Exception):
    """Raised by a handler when retrying cannot help: the job fails at once."""


class Postponed(Exception):
    """Raised by a handler to put the job back into the queue until a time, without counting the attempt."""

    def __init__(self, until: datetime, *, reason: str | None = None) -> None:
        super().__init__(f"not before {until.isoformat()}")
        self.until = until
        self.reason = reason
        """What the job waits for, shown as its last error."""


class LeaseLost(Exception):
    """Raised when another worker holds the job or it was cancelled: the attempt is rolled back."""


def error_text(problem: Exception) -> str:
    """Return a stable code and the message of a failed attempt, as stored with the job."""
    code = problem.code if isinstance(problem, AppError) else type(problem).__qualname__
    return f"{code}: {problem}"


class Job:
    """One attempt at one job, in the scope of its tenant."""

    def __init__(self, db: Database, owner: str, row: dict[str, Any]) -> None:
        self.db = db
        self.owner = owner
        self.job_id = str(row["job_id"])
        self.kind: str = row["kind"]
        self.payload: dict[str, Any] = row["payload"]
        self.attempt: int = row["attempts"]
        self.max_attempts: int = row["max_attempts"]
        self.user_id: str = row["user_id"]
        """The user whose memory the job is about; empty: all users."""
        self.waited: float = row["waited"].total_seconds()
        self.scope = Scope(
            tenant_id=row["tenant_id"],
            project_id=row["project_id"],
            agent_id=row["agent_id"],
            reach="" if row["project_id"] else CROSS_PROJECT,
        )
        self.ended = False
        self.result: dict[str, Any] | None = None
        """The result shown to those who read the job; never content."""

    @asynccontextmanager
    async def holding(self) -> AsyncGenerator[Session]:
        """Open a transaction for part of the job's effect, which commits only while the lease is held."""
        async with self.db.tenant(self.scope) as session:
            yield session
            # Checked last: it locks the row, and heartbeats wait for the lock.
            if not await queries.hold_job(
                session, tenant_id=self.scope.tenant_id, job_id=self.job_id, owner=self.owner
            ):
                raise LeaseLost

    async def keep(self, session: Session, **values: Any) -> None:
        """Add values to the payload in a transaction of the job's effect, so that a later attempt continues there."""
        payload = {**self.payload, **values}
        await queries.save_payload(session, tenant_id=self.scope.tenant_id, job_id=self.job_id, payload=payload)
        session.after_commit(lambda: self.payload.update(values))

    def follow_up(self, job_id: str, kind: str, *, payload: dict[str, Any], max_attempts: int) -> "Job":
        """Return another job of the same scope that this attempt created and holds."""
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
            "user_id": self.user_id,
        }
        return Job(self.db, self.owner, row)

    async def update_subject(self, session: Session, status: str) -> None:
        """Update the state of what the job is about, in the transaction that finishes the job."""
        address = {"tenant": self.scope.tenant_id, "job": self.job_id, "status": status}
        await session.execute(queries.UPDATE_SUBJECT, address)

    async def return_to_queue(self, problem: Exception, *, seconds: float) -> None:
        """Return the job to the queue, to be tried again after some seconds."""
        until = datetime.now(UTC) + timedelta(seconds=seconds)
        await self.finish("pending", error=error_text(problem), available_at=until)

    async def finish(self, status: str, *, error: str | None = None, available_at: datetime | None = None) -> bool:
        """End this attempt in a transaction of its own; return False when the lease is no longer held."""
        message = None
        if error is not None:
            # An error message may hold bytes that a text column cannot store.
            message = error.replace("\0", "").encode(errors="replace").decode()[:MAX_ERROR_LENGTH]
        address = (self.scope.tenant_id, self.scope.project_id, UUID(self.job_id), self.owner)
        (row,) = await self.db.call(queries.FINISH, (*address, status, message, available_at))
        return row["held"]

    @asynccontextmanager
    async def finishing(self) -> AsyncGenerator[Session]:
        """Open the transaction of the job's effect, which also completes the job, or raises LeaseLost."""
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
    """The dependencies from which domains build their job handlers."""

    db: Database
    settings: Settings
    embedders: Any
    """The Embedders of this process; untyped, since jobs cannot import the domain that owns them."""


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """A handler and its retry policy."""

    handler: Handler
    backoff: tuple[float, ...] = DEFAULT_BACKOFF

    def delay(self, attempt: int) -> float:
        """Return the seconds until the next attempt, with 20% jitter so that failed jobs spread out."""
        base = self.backoff[min(attempt, len(self.backoff)) - 1]
        return base * random.uniform(0.8, 1.2)  # noqa: S311


class Registry:
    """The handler of each kind of job."""

    def __init__(self) -> None:
        self._handlers: dict[str, Registered] = {}

    def register(self, kind: str, handler: Handler, *, backoff: tuple[float, ...] = DEFAULT_BACKOFF) -> None:
        """Register the only handler of a kind."""
        if kind in self._handlers:
            raise ValueError(f"two handlers for jobs of kind {kind}")
        self._handlers[kind] = Registered(handler=handler, backoff=backoff)

    def __getitem__(self, kind: str) -> Registered:
        return self._handlers[kind]

    def is_busy(self, kind: str) -> bool:
        """Return whether the handler of a kind reports that it is busy in this process."""
        registered = self._handlers.get(kind)
        busy: Callable[[], bool] | None = getattr(registered and registered.handler, "is_busy", None)
        return busy is not None and busy()

    @property
    def kinds(self) -> list[str]:
        """The kinds this process leases."""
        return sorted(self._handlers)
