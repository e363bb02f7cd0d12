"""Jobs of embedding: work the queue of a project and model off, and find once a day what was missed.

A batch is read, embedded outside of any transaction, and stored in one: a worker killed at any line repeats work and
does nothing twice. While a provider is down nothing of a unit changes; the job waits, and the first answer makes all
jobs that wait for this model due.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
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

# A fact believed no more than this has no vector.
LEAST_CONFIDENCE = 0.1
# A term in fewer documents is counted by the index when it is asked for.
FREQUENT = 64
# After so long a project lets others have their turn; sooner when somebody waits for one.
TURN_SECONDS = 30.0
SHARED_TURN_SECONDS = 3.0
AWAY_SECONDS = 1.0
GIVEN_WAY_SECONDS = 5.0
# A unit that somebody is changing at this moment.
BUSY_SECONDS = 2.0
# A batch that takes longer to read has a text in it on which a pattern of the tenant is slow.
READ_SECONDS = 5.0
LEXICON_SECONDS = 5.0
MAX_ERROR = 500
# What is asked for of a text that is refused, and how little is no text any more.
SHARES = (0.5, 0.25, 0.1)
LEAST_CHARACTERS = 100

log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True)
class Unit:
    """One note, fact or card that is due, with its text; None when it is gone or hidden, or why there is none."""

    row: Row
    text: str | None
    hash: str
    problem: AppError | None = None

    @property
    def address(self) -> dict[str, Any]:
        """How the database finds its place in the queue, as it was when it was read."""
        return {"kind": self.row["owner_kind"], "id": self.row["owner_id"], "queued_at": self.row["queued_at"]}


@dataclass
class Outcome:
    """What became of a batch."""

    vectors: list[tuple[Unit, NDArray[Any]]] = field(default_factory=list)
    settled: list[Unit] = field(default_factory=list)
    delays: list[dict[str, Any]] = field(default_factory=list)
    problem: ProviderError | None = None

    def refuse(self, unit: Unit, problem: AppError) -> None:
        until = datetime.now(UTC) + timedelta(seconds=backoff(unit.row["attempts"] + 1))
        error = f"{problem.code}: {problem.message}"[:MAX_ERROR]
        self.delays.append({**unit.address, "until": until, "error": error, "failed": True})


class EmbedTask:
    """The handler of `embed`: one project and model at a time, and not so many at once that other work starves."""

    def __init__(
        self, embedders: Embedders, settings: Settings, *, gives_way: Callable[[], bool] = lambda: False
    ) -> None:
        self._embedders = embedders
        self._gives_way = gives_way
        self._batch = settings.embed_batch_size
        self._reembed = timedelta(seconds=settings.embed_reembed_seconds)
        self._slots = max(1, settings.worker_concurrency // 2)
        self._running = 0
        self._somebody_waits = False

    async def __call__(self, job: Job) -> None:
        if self._running >= self._slots:
            self._somebody_waits = True
            raise Postponed(datetime.now(UTC) + timedelta(seconds=AWAY_SECONDS))
        self._running += 1
        try:
            await self._work(job)
        finally:
            self._running -= 1

    async def _work(self, job: Job) -> None:
        started = refreshed = time.monotonic()
        while (model := await _find_model(job)) is not None and await self._turn(job, model):
            now = time.monotonic()
            if now - refreshed > LEXICON_SECONDS:
                await refresh_lexicon(job.db, job.scope)
                refreshed = now
            if self._gives_way():
                # Somebody is at work whom we would only slow down; what is embedded later is found later, no more.
                raise Postponed(datetime.now(UTC) + timedelta(seconds=GIVEN_WAY_SECONDS))
            if now - started > (SHARED_TURN_SECONDS if self._somebody_waits else TURN_SECONDS):
                # Longer than those who were turned away, so that they come first.
                pause = 2 * AWAY_SECONDS if self._somebody_waits else 0.0
                self._somebody_waits = False
                raise Postponed(datetime.now(UTC) + timedelta(seconds=pause))
        await refresh_lexicon(job.db, job.scope)
        async with job.finishing():
            pass

    async def _turn(self, job: Job, model: ModelRow) -> bool:
        """One batch; false when nothing was due, Postponed when the provider is away."""
        units = await self._read(job, model)
        if not units:
            return False
        guarded = self._embedders.of(model)
        outcome, due = self._sort(units)
        permitted = guarded.permit(len(due)) if due else 0
        was_failing = guarded.failing
        if permitted:
            await _embed(guarded, due[:permitted], outcome)
        await self._store(job, model, outcome)
        if outcome.vectors and was_failing:
            await job.db.call(queries.RESUME, (model.model_id,))
            job.db.wakeups.soon()
        if due and (outcome.problem is not None or not permitted):
            raise Postponed(datetime.now(UTC) + timedelta(seconds=max(0.05, guarded.rest)))
        return True

    async def _read(self, job: Job, model: ModelRow) -> list[Unit]:
        """A batch; when that takes too long each unit on its own, so that one slow to redact holds up no other."""
        try:
            rows = await _read_units(job, model, limit=self._batch, seconds=READ_SECONDS)
            return [_unit(row) for row in rows]
        except queries.TooSlow:
            place = {"tenant": job.scope.tenant_id, "project": job.scope.project_id, "model": model.model_id}
            async with job.db.tenant(job.scope) as session:
                due = await session.rows(queries.DUE_UNITS, {**place, "limit": self._batch})
        return [unit for line in due for unit in await _read_alone(job, model, line)]

    def _sort(self, units: list[Unit]) -> tuple[Outcome, list[Unit]]:
        """What can be settled without the provider, and what it has to be asked for."""
        outcome, due = Outcome(), list[Unit]()
        now = datetime.now(UTC)
        for unit in units:
            if unit.problem is not None:
                outcome.refuse(unit, unit.problem)
                continue
            stored: bytes | None = unit.row["stored_hash"]
            if unit.text is None or (stored is not None and bytes(stored).hex() == unit.hash):
                outcome.settled.append(unit)
            elif stored is not None and unit.row["embedded_at"] + self._reembed > now:
                until = unit.row["embedded_at"] + self._reembed
                outcome.delays.append({**unit.address, "until": until, "error": None, "failed": False})
            else:
                due.append(unit)
        return outcome, due

    async def _store(self, job: Job, model: ModelRow, outcome: Outcome) -> None:
        units: list[dict[str, Any]] = [{**unit.address, "gone": unit.text is None} for unit in outcome.settled]
        for place, (unit, _) in enumerate(outcome.vectors, start=1):
            units.append({**unit.address, "hash": unit.hash, "place": place, "gone": False})
        now = datetime.now(UTC)
        async with job.db.tenant(job.scope) as session:
            stored = None
            if units:
                vectors = [_vector(vector) for _, vector in outcome.vectors]
                stored = await session.row(
                    queries.STORE_VECTORS,
                    {"model": model.model_id, "made": model.created_at, "units": _json(units), "vectors": vectors},
                )
            skipped = set(stored["skipped"] or ()) if stored else set[Any]()
            busy = {"until": now + timedelta(seconds=BUSY_SECONDS), "error": None, "failed": False}
            delays = outcome.delays + [
                {**u.address, **busy} for u, _ in outcome.vectors if u.row["owner_id"] in skipped
            ]
            if delays:
                await session.execute(queries.DELAY_UNITS, {"model": model.model_id, "units": _json(delays)})
            if redactions := sum(unit.row["redactions"] for unit, _ in outcome.vectors):
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


async def _read_units(job: Job, model: ModelRow, *, limit: int, seconds: float, owner: Any = None) -> list[Row]:
    arguments: Row = {
        "model": model.model_id,
        "limit": limit,
        "least": LEAST_CONFIDENCE,
        "patterns": list(BUILT_IN),
        "characters": REDACTED_CHARACTERS,
        "owner": owner,
    }
    async with job.db.tenant(job.scope) as session:
        return await queries.rows_within(session, queries.READ_UNITS, arguments, seconds=seconds)


async def _read_alone(job: Job, model: ModelRow, line: Row) -> list[Unit]:
    """One unit of the queue; with what is wrong in place of its text when it cannot be redacted in time."""
    try:
        rows = await _read_units(job, model, limit=1, seconds=REDACTION_SECONDS, owner=line["owner_id"])
        return [_unit(row) for row in rows]
    except queries.TooSlow:
        problem = RedactionSlow()
        EMBEDDING_FAILURES.labels(model.name, "redaction").inc()
        log.warning(
            "embedding_redaction_slow",
            tenant_id=job.scope.tenant_id,
            project_id=job.scope.project_id,
            kind=line["owner_kind"],
            id=str(line["owner_id"]),
            error=problem.message,
        )
        return [Unit(line, None, "", problem)]


def _unit(row: Row) -> Unit:
    if row["words"] is None:
        return Unit(row, None, "")
    text = unit_text(row["words"], author=row["author"], occurred_at=row["occurred_at"])
    return Unit(row, text, text_hash(text))


async def _find_model(job: Job) -> ModelRow | None:
    wanted = job.payload.get("model")
    return next((model for model in await list_models(job.db) if model.model_id == wanted), None)


async def _embed(guarded: GuardedEmbedder, units: list[Unit], outcome: Outcome) -> None:
    """Asks for all at once; when the provider will not take one of them, for each on its own."""
    try:
        vectors = await guarded.embed([unit.text or "" for unit in units])
        outcome.vectors += zip(units, vectors, strict=True)
    except (InputRefused, UnusableResponse) as problem:
        if len(units) == 1:
            await _embed_less(guarded, units[0], outcome, problem)
            return
        for unit in units:
            if outcome.problem is not None or not guarded.permit(1):
                return
            await _embed(guarded, [unit], outcome)
    except ProviderError as problem:
        outcome.problem = problem


async def _embed_less(guarded: GuardedEmbedder, unit: Unit, outcome: Outcome, problem: ProviderError) -> None:
    """Asks for the beginning of a text, since one that is refused is mostly too long; puts the unit off at last."""
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
            outcome.problem = down
            return
        else:
            log.warning("embedding_text_cut", model=guarded.model.name, characters=len(text), share=share)
            outcome.vectors.append((unit, vectors[0]))
            return
    outcome.refuse(unit, problem)


def _vector(row: NDArray[Any]) -> str:
    return f"[{','.join(map(str, row.tolist()))}]"


def _json(units: list[dict[str, Any]]) -> str:
    return msgspec.json.encode(units).decode()


async def refresh_lexicon(db: Database, who: Scope, *, kinds: tuple[str, ...] | None = None) -> None:
    """Counts words anew where much was added since; or of these kinds in any case."""
    if kinds is None:
        place = {"tenant": who.tenant_id, "project": who.project_id}
        kinds = tuple(row["kind"] for row in await db.query(who, queries.STALE_LEXICON, place))
    for kind in kinds:
        async with db.tenant(who) as session:
            await session.execute(queries.NO_TIMEOUT)
            await session.execute(queries.REFRESH_LEXICON, {"kind": kind, "frequent": FREQUENT})


async def recount(job: Job) -> None:
    """Counts the words of a project anew after something of it was hidden, shown again or erased."""
    # The job is the tenant's, out of the sight of agents; what it does is in one project.
    await refresh_lexicon(job.db, replace(job.scope, project_id=job.payload.get("project_id")))


async def queue_missing(db: Database, who: Scope) -> int:
    """Puts a project's vectors and their queue in step with what there is; answers how many units were queued."""
    async with db.tenant(who) as session:
        await session.execute(queries.NO_TIMEOUT)
        row = await session.row(queries.RECONCILE, {"least": LEAST_CONFIDENCE})
    assert row is not None
    return row["queued"]


async def reconcile(job: Job) -> None:
    """Puts vectors and their queue in step with what there is, and tells the audit log of what was redacted."""
    await queue_missing(job.db, job.scope)
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
    """Register embedding, its reconciliation and the recount of vectors; embedding yields to extraction."""
    embed = EmbedTask(context.embedders, context.settings, gives_way=lambda: registry.is_busy("extract"))
    registry.register("embed", embed)
    registry.register("embed_reconcile", reconcile)
    registry.register("recount", recount)
