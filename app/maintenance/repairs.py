"""Repairs of a project, each limited by a cooldown and an hourly budget across callers and replicas."""

import math
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import msgspec

from app.access import Principal, new_id
from app.audit import events as audit
from app.db.database import Database, Row
from app.db.scope import Scope
from app.embeddings.tasks import queue_missing
from app.errors import AppError, Conflict, NotFound, RateLimited
from app.jobs.queue import NewJob, enqueue
from app.maintenance import queries
from app.maintenance.diagnostics import MAX_REQUEUED
from app.maintenance.options import DEFAULTS, MaintenanceOptions
from app.maintenance.retention import sweep
from app.maintenance.schemas import ACTIONS, Action, Repaired
from app.tenancy.settings import PipelineSettings, lock_settings

MAX_LEASES = 1000
MAX_CHECKED = 1000
HOUR = timedelta(hours=1)


class RepairRun(msgspec.Struct, frozen=True, kw_only=True):
    """A finished repair: its record and its result."""

    row: Row
    result: Repaired


async def repair(db: Database, who: Principal, *, action: str, options: MaintenanceOptions = DEFAULTS) -> Repaired:
    """Run a repair on request; raise RateLimited within its cooldown or over its hourly budget."""
    known: Action | None = next((name for name in ACTIONS if action == name), None)
    if known is None:
        raise NotFound(f"There is no such repair; use one of {', '.join(ACTIONS)}.", code="repair_not_found")
    return (await run(db, who, action=known, requested_by=who.key_id, options=options)).result


async def run(
    db: Database, who: Scope, *, action: Action, requested_by: str, options: MaintenanceOptions = DEFAULTS
) -> RepairRun:
    """Reserve and run a repair, and record its result, also in the audit log."""
    row = await _reserve(db, who, action=action, requested_by=requested_by)
    affected, message, success = 0, "", False
    try:
        affected, message = await _REPAIRS[action](db, who, options)
        success = True
    except AppError as problem:
        message = f"{problem.code}: {problem.message}"
    ended = {**row, "success": success, "affected": affected, "message": message}
    async with db.tenant(who) as session:
        await queries.replace_repair(session, row=ended)
        details = {"action": "repair", "repair": action, "repair_id": row["repair_id"]}
        await audit.record(session, "admin_action", key_id=requested_by, **details, success=success, affected=affected)
        if affected:
            session.wake_workers()
    return RepairRun(row=ended, result=Repaired(action=action, success=success, affected=affected, message=message))


async def _reserve(db: Database, who: Scope, *, action: Action, requested_by: str) -> Row:
    """Insert the record of a repair before it starts, so that concurrent callers count it."""
    project = {"tenant_id": who.tenant_id, "project_id": who.project_id or ""}
    async with db.tenant(who) as session:
        settings = await lock_settings(session, who)
        if action == "retention-sweep" and settings.mutations_frozen:
            raise Conflict(
                "The project setting mutations_frozen is on; turn it off to purge rows.", code="mutations_frozen"
            )
        now = await queries.database_time(session)
        recent = await queries.recent_runs(session, **project, action=action, hour_ago=now - HOUR)
        _check_limits(action, settings, recent, now)
        row: Row = {
            **project,
            "repair_id": new_id(),
            "action": action,
            "success": False,
            "affected": 0,
            "message": "The repair was started and has not ended.",
            "requested_by": requested_by,
            "score_before": None,
            "score_after": None,
            "created_at": now,
        }
        await queries.insert_repair(session, row=row)
    return row


def _check_limits(action: Action, settings: PipelineSettings, recent: Row, now: datetime) -> None:
    if action in ("check-index", "reembed"):
        cooldown, budget = settings.repair_reembed_cooldown_ms, settings.repair_reembed_hourly_budget
    else:
        cooldown, budget = settings.repair_requeue_cooldown_ms, settings.repair_requeue_hourly_budget
    ready = None if recent["last"] is None else recent["last"] + timedelta(milliseconds=cooldown)
    if ready is not None and ready > now:
        message = f"{action} has just run; its cooldown is {cooldown / 1000:g} seconds."
        raise RateLimited(message, retry_after=_seconds(ready - now), code="repair_cooling_down")
    if recent["runs"] >= budget:
        message = f"{action} has used up its hourly budget of {budget} runs."
        raise RateLimited(message, retry_after=_seconds(recent["first"] + HOUR - now), code="repair_budget_spent")


def _seconds(left: timedelta) -> int:
    return max(1, math.ceil(left.total_seconds()))


async def _requeue_dead(db: Database, who: Scope, _: MaintenanceOptions) -> tuple[int, str]:
    (row,) = await db.query(who, queries.REQUEUE_DEAD, {"limit": MAX_REQUEUED})
    return row["affected"], f"{row['affected']} dead jobs were requeued."


async def _release_leases(db: Database, who: Scope, _: MaintenanceOptions) -> tuple[int, str]:
    (row,) = await db.query(who, queries.RELEASE_LEASES, {"limit": MAX_LEASES})
    return row["affected"], f"{row['affected']} expired leases were released."


async def _check_index(db: Database, who: Scope, _: MaintenanceOptions) -> tuple[int, str]:
    (row,) = await db.query(who, queries.CHECK_TERMS, {"limit": MAX_CHECKED})
    message = f"{row['repaired']} of {row['looked']} notes were reindexed."
    if row["repaired"] and row["looked"] >= MAX_CHECKED:
        # The limit was reached and some notes were stale, so there may be more.
        project = Scope(tenant_id=who.tenant_id, project_id=who.project_id)
        async with db.tenant(project) as session:
            await enqueue(session, project, job=NewJob(kind="reindex", dedupe_key="reindex"))
        message += " All others are reindexed in the background."
    return row["repaired"], message


async def _sweep(db: Database, who: Scope, options: MaintenanceOptions) -> tuple[int, str]:
    counts = await sweep(db, who, retention=options.retention)
    full = counts.pop("full")
    purged = ", ".join(f"{name} {count}" for name, count in counts.items() if count) or "nothing"
    return sum(counts.values()), f"Purged: {purged}.{' There is more.' if full else ''}"


async def _reembed(db: Database, who: Scope, options: MaintenanceOptions) -> tuple[int, str]:
    queued = await queue_missing(db, who, least=options.least_confidence)
    return queued, f"{queued} units without a vector were queued."


_REPAIRS: dict[Action, Callable[[Database, Scope, MaintenanceOptions], Awaitable[tuple[int, str]]]] = {
    "requeue-dead": _requeue_dead,
    "release-leases": _release_leases,
    "check-index": _check_index,
    "retention-sweep": _sweep,
    "reembed": _reembed,
}
