"""Jobs of embeddings: process the queue of a project and model, and find once a day what was missed.

A batch is read, embedded outside of any transaction, and stored in one, so that a worker killed at any point repeats
work but stores nothing twice. While a provider is down the job waits; its first success makes all waiting jobs of the
model due.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import structlog
from msgspec.structs import replace
from numpy.typing import NDArray

from app.audit import events as audit
from app.config import Settings
from app.db.database import Database, Row
from app.db.scope import Scope
from app.embeddings import queries
from app.embeddings.embedders import Embedders, GuardedEmbedder, backoff
from app.embeddings.models import ModelRow, list_models
from app.embeddings.redactions import BUILT_IN, REDACTION_SECONDS, RedactionSlow
from app.embeddings.texts import REDACTED_CHARACTERS, text_hash, truncated, unit_text
from app.errors import AppError
from app.jobs.queue import NewJob, enqueue_all
from app.jobs.registry import Job, JobContext, Postponed, Registry
from app.providers.base import InputRefused, ProviderError, UnusableResponse
from app.providers.http import REJECTED_INPUT
from app.telemetry.metrics import EMBEDDING_FAILURES

# Facts of no more confidence than this have no vector, unless the setting EMBED_MIN_CONFIDENCE says otherwise.
LEAST_CONFIDENCE = 0.1
# Terms in fewer documents are counted in the index when needed.
FREQUENT = 64
# How long a project may use a slot; less when another project waits for one.
TURN_SECONDS = 30.0
SHARED_TURN_SECONDS = 3.0
NO_SLOT_SECONDS = 1.0
YIELD_SECONDS = 5.0
# When to retry a unit that was locked by another transaction.
BUSY_SECONDS = 2.0
# A batch that takes longer to read contains a text on which a pattern of the tenant is slow.
READ_SECONDS = 5.0
LEXICON_SECONDS = 5.0
MAX_ERROR = 500
# Which part of a refused text to try instead, and the shortest text worth trying.
SHARES = (0.5, 0.25, 0.1)
LEAST_CHARACTERS = 100

log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True)
class Unit:
    """A unit that is due, with its text; None when the unit is gone or hidden, or has a problem."""

    row: Row
    text: str | None
    hash: str
    problem: AppError | None = None

    @property
    def address(self) -> dict[str, Any]:
        """The entry in the queue as it was when it was read."""
        return {"kind": self.row["owner_kind"], "id": self.row["owner_id"], "queued_at": self.row["queued_at"]}


@dataclass
class BatchResult:
    """What to store for a batch."""

    vectors: list[tuple[Unit, NDArray[Any]]] = field(default_factory=list)
    settled: list[Unit] = field(default_factory=list)
    delays: list[dict[str, Any]] = field(default_factory=list)
    problem: ProviderError | None = None

    def postpone(self, unit: Unit, problem: AppError) -> None:
        """Retry a failed unit later."""
        until = datetime.now(UTC) + timedelta(seconds=backoff(unit.row["attempts"] + 1))
        error = f"{problem.code}: {problem.message}"[:MAX_ERROR]
        self.delays.append({**unit.address, "until": until, "error": error, "failed": True})


class EmbedTask:
    """The handler of `embed`: one project and model per job, in a limited number of slots so that others can run."""

    def __init__(
        self, embedders: Embedders, settings: Settings, *, should_yield: Callable[[], bool] = lambda: False
    ) -> None:
        self._embedders = embedders
        self._should_yield = should_yield
        self._batch = settings.embed_batch_size
        self._least = settings.embed_min_confidence
        self._reembed = timedelta(seconds=settings.embed_reembed_seconds)
        self._slots = max(1, settings.worker_concurrency // 2)
        self._running = 0
        self._slot_wanted = False

    async def __call__(self, job: Job) -> None:
        if self._running >= self._slots:
            self._slot_wanted = True
            raise Postponed(datetime.now(UTC) + timedelta(seconds=NO_SLOT_SECONDS))
        self._running += 1
        try:
            await self._work(job)
        finally:
            self._running -= 1

    async def _work(self, job: Job) -> None:
        started = refreshed = time.monotonic()
        while (model := await _find_model(job)) is not None and await self._process_batch(job, model):
            now = time.monotonic()
            if now - refreshed > LEXICON_SECONDS:
                await refresh_lexicon(job.db, job.scope)
                refreshed = now
            if self._should_yield():
                # Extraction has priority: a late vector only means that a unit is found by its words until then.
                raise Postponed(datetime.now(UTC) + timedelta(seconds=YIELD_SECONDS))
            if now - started > (SHARED_TURN_SECONDS if self._slot_wanted else TURN_SECONDS):
                # Longer than the jobs that found no slot, so that they come first.
                pause = 2 * NO_SLOT_SECONDS if self._slot_wanted else 0.0
                self._slot_wanted = False
                raise Postponed(datetime.now(UTC) + timedelta(seconds=pause))
        await refresh_lexicon(job.db, job.scope)
        async with job.finishing():
            pass

    async def _process_batch(self, job: Job, model: ModelRow) -> bool:
        """Process one batch; return False when nothing was due, raise Postponed when the provider is unavailable."""
        units = await self._read(job, model)
        if not units:
            return False
        guarded = self._embedders.of(model)
        result, due = self._sort(units)
        permitted = guarded.permit(len(due)) if due else 0
        was_failing = guarded.failing
        if permitted:
            await _embed(guarded, due[:permitted], result)
        await self._store(job, model, result)
        if result.vectors and was_failing:
            await job.db.call(queries.RESUME, (model.model_id,))
            job.db.wakeups.soon()
        if due and (result.problem is not None or not permitted):
            raise Postponed(datetime.now(UTC) + timedelta(seconds=max(0.05, guarded.pause_seconds)))
        return True

    async def _read(self, job: Job, model: ModelRow) -> list[Unit]:
        """Read a batch; when that is slow, each unit by itself, so that one slow text does not delay the others."""
        try:
            rows = await _read_units(job, model, limit=self._batch, least=self._least, seconds=READ_SECONDS)
            return [_unit(row) for row in rows]
        except queries.TooSlow:
            params = {"tenant": job.scope.tenant_id, "project": job.scope.project_id, "model": model.model_id}
            async with job.db.tenant(job.scope) as session:
                due = await session.rows(queries.DUE_UNITS, {**params, "limit": self._batch})
        return [unit for entry in due for unit in await _read_one(job, model, entry, least=self._least)]

    def _sort(self, units: list[Unit]) -> tuple[BatchResult, list[Unit]]:
        """Return what can be stored without calling the provider, and the units to embed."""
        result, due = BatchResult(), list[Unit]()
        now = datetime.now(UTC)
        for unit in units:
            if unit.problem is not None:
                result.postpone(unit, unit.problem)
                continue
            stored: bytes | None = unit.row["stored_hash"]
            if unit.text is None or (stored is not None and bytes(stored).hex() == unit.hash):
                result.settled.append(unit)
            elif stored is not None and unit.row["embedded_at"] + self._reembed > now:
                until = unit.row["embedded_at"] + self._reembed
                result.delays.append({**unit.address, "until": until, "error": None, "failed": False})
            else:
                due.append(unit)
        return result, due

    async def _store(self, job: Job, model: ModelRow, result: BatchResult) -> None:
        units: list[dict[str, Any]] = [{**unit.address, "gone": unit.text is None} for unit in result.settled]
        for position, (unit, _) in enumerate(result.vectors, start=1):
            units.append({**unit.address, "hash": unit.hash, "place": position, "gone": False})
        now = datetime.now(UTC)
        async with job.db.tenant(job.scope) as session:
            stored = None
            if units:
                vectors = [_vector(vector) for _, vector in result.vectors]
                stored = await session.row(
                    queries.STORE_VECTORS,
                    {
                        "model": model.model_id,
                        "created_at": model.created_at,
                        "units": _json(units),
                        "vectors": vectors,
                    },
                )
            skipped = set(stored["skipped"] or ()) if stored else set[Any]()
            busy = {"until": now + timedelta(seconds=BUSY_SECONDS), "error": None, "failed": False}
            delays = result.delays + [{**u.address, **busy} for u, _ in result.vectors if u.row["owner_id"] in skipped]
            if delays:
                await session.execute(queries.DELAY_UNITS, {"model": model.model_id, "units": _json(delays)})
            if redactions := sum(unit.row["redactions"] for unit, _ in result.vectors):
                await queries.count_redactions(
                    session,
                    tenant_id=job.scope.tenant_id,
                    project_id=job.scope.project_id or "",
                    day=now.date(),
                    redactions=redactions,
                )
            subjects = sorted(str(entity) for entity in stored["subjects"] or ()) if stored else []
            refreshes = [
                NewJob(kind="card_refresh", payload={"entity_id": entity}, dedupe_key=entity) for entity in subjects
            ]
            await enqueue_all(session, job.scope, jobs=refreshes)


async def _read_units(
    job: Job, model: ModelRow, *, limit: int, least: float, seconds: float, owner: Any = None
) -> list[Row]:
    arguments: Row = {
        "model": model.model_id,
        "limit": limit,
        "least": least,
        "patterns": list(BUILT_IN),
        "characters": REDACTED_CHARACTERS,
        "owner": owner,
    }
    async with job.db.tenant(job.scope) as session:
        return await queries.rows_within(session, queries.READ_UNITS, arguments, seconds=seconds)


async def _read_one(job: Job, model: ModelRow, entry: Row, *, least: float) -> list[Unit]:
    """Read one unit; with the problem instead of its text when it cannot be redacted in time."""
    try:
        rows = await _read_units(job, model, limit=1, least=least, seconds=REDACTION_SECONDS, owner=entry["owner_id"])
        return [_unit(row) for row in rows]
    except queries.TooSlow:
        problem = RedactionSlow()
        EMBEDDING_FAILURES.labels(model.name, "redaction").inc()
        log.warning(
            "embedding_redaction_slow",
            tenant_id=job.scope.tenant_id,
            project_id=job.scope.project_id,
            kind=entry["owner_kind"],
            id=str(entry["owner_id"]),
            error=problem.message,
        )
        return [Unit(entry, None, "", problem)]


def _unit(row: Row) -> Unit:
    if row["words"] is None:
        return Unit(row, None, "")
    text = unit_text(row["words"], author=row["author"], occurred_at=row["occurred_at"])
    return Unit(row, text, text_hash(text))


async def _find_model(job: Job) -> ModelRow | None:
    wanted = job.payload.get("model")
    return next((model for model in await list_models(job.db) if model.model_id == wanted), None)


async def _embed(guarded: GuardedEmbedder, units: list[Unit], result: BatchResult) -> None:
    """Embed all units at once; when the provider refuses one of them, each by itself."""
    try:
        vectors = await guarded.embed([unit.text or "" for unit in units])
        result.vectors += zip(units, vectors, strict=True)
    except (InputRefused, UnusableResponse) as problem:
        if len(units) == 1:
            await _embed_beginning(guarded, units[0], result, problem)
            return
        for unit in units:
            if result.problem is not None or not guarded.permit(1):
                return
            await _embed(guarded, [unit], result)
    except ProviderError as problem:
        result.problem = problem


async def _embed_beginning(guarded: GuardedEmbedder, unit: Unit, result: BatchResult, problem: ProviderError) -> None:
    """Embed the beginning of a refused text, which is usually too long; postpone the unit if that fails too."""
    text = unit.text or ""
    for share in SHARES if problem.details.get("status") in REJECTED_INPUT else ():
        if len(text) * share < LEAST_CHARACTERS or not guarded.permit(1):
            break
        try:
            vectors = await guarded.embed([truncated(text, characters=int(len(text) * share))])
        except InputRefused as again:
            problem = again
        except UnusableResponse as again:
            problem = again
            break
        except ProviderError as down:
            result.problem = down
            return
        else:
            log.warning("embedding_text_cut", model=guarded.model.name, characters=len(text), share=share)
            result.vectors.append((unit, vectors[0]))
            return
    result.postpone(unit, problem)


def _vector(row: NDArray[Any]) -> str:
    return f"[{','.join(map(str, row.tolist()))}]"


def _json(units: list[dict[str, Any]]) -> str:
    return msgspec.json.encode(units).decode()


async def refresh_lexicon(db: Database, who: Scope, *, kinds: tuple[str, ...] | None = None) -> None:
    """Count terms again for kinds with many new units; or for these kinds in any case."""
    if kinds is None:
        params = {"tenant": who.tenant_id, "project": who.project_id}
        kinds = tuple(row["kind"] for row in await db.query(who, queries.STALE_LEXICON, params))
    for kind in kinds:
        async with db.tenant(who) as session:
            await session.execute(queries.NO_TIMEOUT)
            await session.execute(queries.REFRESH_LEXICON, {"kind": kind, "frequent": FREQUENT})


async def recount(job: Job) -> None:
    """Count the terms of a project again after something was hidden, restored or erased."""
    # The job belongs to the tenant, so that agents don't see it, but works on one project.
    await refresh_lexicon(job.db, replace(job.scope, project_id=job.payload.get("project_id")))


async def queue_missing(db: Database, who: Scope, *, least: float = LEAST_CONFIDENCE) -> int:
    """Make the vectors and the queue of a project match its units; return how many units were queued."""
    async with db.tenant(who) as session:
        await session.execute(queries.NO_TIMEOUT)
        row = await session.row(queries.RECONCILE, {"least": least})
    assert row is not None
    return row["queued"]


async def reconcile(job: Job, *, least: float = LEAST_CONFIDENCE) -> None:
    """Make vectors and queue match the units, and write the day's redactions to the audit log."""
    await queue_missing(job.db, job.scope, least=least)
    await refresh_lexicon(job.db, job.scope, kinds=("note", "fact", "object"))
    place = {"tenant_id": job.scope.tenant_id, "project_id": job.scope.project_id or ""}
    async with job.finishing() as session:
        for row in await queries.take_redactions(session, **place, before=datetime.now(UTC).date()):
            await audit.record(
                session,
                "admin_action",
                key_id="schedule",
                action="embedding_redaction",
                day=row["day"].isoformat(),
                redactions=row["redactions"],
            )


def register_jobs(registry: Registry, context: JobContext) -> None:
    """Register the jobs of embeddings; embedding yields to extraction."""
    embed = EmbedTask(context.embedders, context.settings, should_yield=lambda: registry.is_busy("extract"))
    registry.register("embed", embed)
    registry.register("embed_reconcile", partial(reconcile, least=context.settings.embed_min_confidence))
    registry.register("recount", recount)
