"""The worker loop: lease, run, renew and finish jobs, so that a killed worker neither loses nor repeats an effect."""

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import structlog

from app.config import Settings
from app.db.database import Database
from app.errors import Unavailable
from app.jobs import queries
from app.jobs.registry import Job, LeaseLost, PermanentFailure, Postponed, Registry, error_text
from app.jobs.schedule import SCHEDULE
from app.telemetry.logs import describe_failure
from app.telemetry.metrics import JOB_SECONDS, JOB_WAIT_SECONDS, JOBS
from app.telemetry.traces import span

log: structlog.stdlib.BoundLogger = structlog.get_logger()

MAX_LEASES_PER_CALL = 10
MIN_FREE_SLOTS = 5
GATHER_SECONDS = 0.015
OUTAGE_PAUSE = 1.0
MAX_RETRY_AFTER_SECONDS = 300.0


class Worker:
    """Runs jobs concurrently in one process."""

    def __init__(self, db: Database, registry: Registry, settings: Settings) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._db = db
        self._registry = registry
        self._settings = settings
        self._running: dict[Job, asyncio.Task[None]] = {}
        self._leases = 0
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._last_tenant = ""

    def stop(self) -> None:
        """Stop leasing; `run` returns once running jobs have ended or the drain time is over."""
        self._stopping.set()
        self._wake.set()

    async def run(self) -> None:
        """Run jobs until stopped."""
        log.info("worker_started", worker=self.name, kinds=self._registry.kinds)
        background = [
            asyncio.create_task(self._db.wakeups.listen(self._wake.set)),
            asyncio.create_task(self._every(self._settings.lease_seconds / 3, self._renew)),
            asyncio.create_task(self._every(max(0.5, min(5.0, self._settings.lease_seconds / 2)), self._reap)),
            *(asyncio.create_task(self._every(seconds, self._scheduling(enqueue))) for seconds, enqueue in SCHEDULE),
        ]
        try:
            while not self._stopping.is_set():
                await self._lease_and_wait()
            await self._drain()
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            log.info("worker_stopped", worker=self.name)

    async def _lease_and_wait(self) -> None:
        self._wake.clear()
        if 0 < self._settings.worker_concurrency - len(self._running) < min(MIN_FREE_SLOTS, len(self._running)):
            # Wait a moment for more jobs to end, so that one call leases the successors of all of them.
            await asyncio.sleep(GATHER_SECONDS)
        free = self._settings.worker_concurrency - len(self._running)
        leased = 0
        if free > 0:
            try:
                leased = await self._lease(min(free, MAX_LEASES_PER_CALL))
            except (psycopg.Error, Unavailable) as problem:
                log.warning("lease_failed", error=type(problem).__name__)
                await self._pause(OUTAGE_PAUSE)
                return
        # Something leased means there may be more; otherwise sleep until woken, a job ends, or the next poll.
        if leased == 0 or len(self._running) >= self._settings.worker_concurrency:
            await self._pause(self._settings.poll_seconds)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)

    async def _lease(self, limit: int) -> int:
        # A new owner for every lease, so that an abandoned attempt is never taken for its successor.
        self._leases += 1
        owner = f"{self.name}:{self._leases}"
        arguments = (owner, self._registry.kinds, limit, self._settings.lease_seconds, self._last_tenant)
        rows = await self._db.call(queries.LEASE, arguments, again=False)
        for row in rows:
            self._last_tenant = row["tenant_id"]
            if row["job_id"] is not None:
                job = Job(self._db, owner, row)
                self._running[job] = asyncio.create_task(self._attempt(job))
        return len(rows)

    async def _attempt(self, job: Job) -> None:
        started = time.perf_counter()
        outcome = "failed"
        try:
            JOB_WAIT_SECONDS.labels(job.kind).observe(max(0.0, job.waited))
            with span("job", kind=job.kind):
                outcome = await self._run_handler(job)
        except Exception as problem:  # noqa: BLE001 - other jobs must go on
            # The end could not be recorded: the lease expires and the job is leased again.
            log.warning("job_end_lost", job_id=job.job_id, kind=job.kind, error=type(problem).__name__)
            outcome = "lost"
        finally:
            JOBS.labels(job.kind, outcome).inc()
            JOB_SECONDS.labels(job.kind).observe(time.perf_counter() - started)
            del self._running[job]
            self._wake.set()

    async def _run_handler(self, job: Job) -> str:
        try:
            await self._registry[job.kind].handler(job)
            if not job.ended and not await job.finish("completed"):
                return "lease_lost"
            return "completed"
        except LeaseLost:
            return "lease_lost"
        except asyncio.CancelledError:
            if self._stopping.is_set():
                # Draining took too long: return the job as if it had never been leased.
                await asyncio.shield(job.finish("pending", available_at=datetime.now(UTC)))
                return "returned"
            return "lease_lost"
        except Postponed as problem:
            await job.finish("postponed", error=problem.reason, available_at=problem.until)
            return "postponed"
        except PermanentFailure as problem:
            await job.finish("failed", error=str(problem))
            return "failed"
        except Exception as problem:  # noqa: BLE001 - a handler may raise anything
            return await self._failed(job, problem)

    async def _failed(self, job: Job, problem: Exception) -> str:
        log.warning("job_failed", job_id=job.job_id, kind=job.kind, attempt=job.attempt, **describe_failure(problem))
        error = error_text(problem)
        if job.attempt >= job.max_attempts:
            await job.finish("dead", error=error)
            return "dead"
        retry_after = getattr(problem, "retry_after", None) or 0.0
        delay = max(self._registry[job.kind].delay(job.attempt), min(retry_after, MAX_RETRY_AFTER_SECONDS))
        await job.finish("pending", error=error, available_at=datetime.now(UTC) + timedelta(seconds=delay))
        return "retried"

    async def _every(self, seconds: float, action: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await action()
            except (psycopg.Error, Unavailable) as problem:
                log.warning("worker_background_failed", error=type(problem).__name__)
            await asyncio.sleep(seconds)

    async def _renew(self) -> None:
        # A job whose effect is committed has no lease any more, though its handler may still run.
        renewed = [job for job in self._running if not job.ended]
        if not renewed:
            return
        arguments = (
            [job.scope.tenant_id for job in renewed],
            [UUID(job.job_id) for job in renewed],
            [job.owner for job in renewed],
            self._settings.lease_seconds,
        )
        rows = await self._db.call(queries.RENEW, arguments)
        held = {(str(row["job_id"]), row["lease_owner"]) for row in rows}
        for job in renewed:
            # The lease is lost: cancelled by a caller, or expired after a stall. Its commit would be refused anyway.
            if (job.job_id, job.owner) not in held and not job.ended and (task := self._running.get(job)) is not None:
                task.cancel()

    async def _reap(self) -> None:
        for row in await self._db.call(queries.REAP, (1000,)):
            log.warning("lease_expired", job_id=str(row["job_id"]), status=row["status"])
            self._wake.set()

    def _scheduling(self, enqueue: Callable[[Database], Awaitable[bool]]) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            if await enqueue(self._db):
                self._wake.set()

        return run

    async def _drain(self) -> None:
        if not self._running:
            return
        log.info("worker_draining", jobs=len(self._running))
        tasks = list(self._running.values())
        _, unfinished = await asyncio.wait(tasks, timeout=self._settings.drain_seconds)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
