"""Repairs: each under a cooldown and an hourly budget of its project, whoever asks and on whichever replica."""

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
from app.maintenance.diagnosing import REVIVED_AT_ONCE
from app.maintenance.retention import sweep
from app.maintenance.schemas import ACTIONS, Action, Repaired
from app.tenancy.settings import PipelineSettings, read_settings

LEASES_AT_ONCE = 1000
CHECKED_AT_ONCE = 1000
HOUR = timedelta(hours=1)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A repair on record, and what it did."""

    row: Row
    done: Repaired


async def repair(db: Database, who: Principal, *, action: str) -> Repaired:
    """Repairs by hand: under cooldown and budget, never halted."""
    known: Action | None = next((name for name in ACTIONS if action == name), None)
    if known is None:
        raise NotFound(f"There is no such repair; there are {', '.join(ACTIONS)}.", code="repair_not_found")
    return (await run(db, who, action=known, requested_by=who.key_id)).done


async def run(db: Database, who: Scope, *, action: Action, requested_by: str) -> Run:
    """Takes the action's turn, does it, and puts on record and into the audit log what came of it."""
    row = await _reserve(db, who, action=action, requested_by=requested_by)
    affected, message, success = 0, "", False
    try:
        affected, message = await _REPAIRS[action](db, who)
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
    return Run(row=ended, done=Repaired(action=action, success=success, affected=affected, message=message))


async def _reserve(db: Database, who: Scope, *, action: Action, requested_by: str) -> Row:
    """The run's line, written before it starts: who comes meanwhile finds the turn taken."""
    place = {"tenant_id": who.tenant_id, "project_id": who.project_id or ""}
    async with db.tenant(who) as session:
        locked = await session.row(
            queries.LOCK_SETTINGS, {"tenant": place["tenant_id"], "project": place["project_id"]}
        )
        if locked is None:
            raise NotFound("There is no such project.", code="project_not_found")
        settings = read_settings(locked["settings"])
        if action == "retention-sweep" and settings.mutations_frozen:
            raise Conflict("The project's mutations are frozen: nothing is purged.", code="mutations_frozen")
        now = await queries.database_time(session)
        recent = await queries.recent_runs(session, **place, action=action, hour_ago=now - HOUR)
        _check_turn(action, settings, recent, now)
        row: Row = {
            **place,
            "repair_id": new_id(),
            "action": action,
            "success": False,
            "affected": 0,
            "message": "It was started, and has not ended.",
            "requested_by": requested_by,
            "score_before": None,
            "score_after": None,
            "created_at": now,
        }
        await queries.insert_repair(session, row=row)
    return row


def _check_turn(action: Action, settings: PipelineSettings, recent: Row, now: datetime) -> None:
    if action in ("check-index", "reembed"):
        cooldown, budget = settings.repair_reembed_cooldown_ms, settings.repair_reembed_hourly_budget
    else:
        cooldown, budget = settings.repair_requeue_cooldown_ms, settings.repair_requeue_hourly_budget
    ready = None if recent["last"] is None else recent["last"] + timedelta(milliseconds=cooldown)
    if ready is not None and ready > now:
        message = f"{action} ran a moment ago; it may run again after {cooldown / 1000:g} seconds."
        raise RateLimited(message, retry_after=_seconds(ready - now), code="repair_cooling_down")
    if recent["runs"] >= budget:
        message = f"{action} has run {recent['runs']} times within the hour, which is its budget."
        raise RateLimited(message, retry_after=_seconds(recent["first"] + HOUR - now), code="repair_budget_spent")


def _seconds(left: timedelta) -> int:
    return max(1, math.ceil(left.total_seconds()))


async def _requeue_dead(db: Database, who: Scope) -> tuple[int, str]:
    (row,) = await db.query(who, queries.REQUEUE_DEAD, {"limit": REVIVED_AT_ONCE})
    return row["affected"], f"{row['affected']} dead jobs have another round."


async def _release_leases(db: Database, who: Scope) -> tuple[int, str]:
    (row,) = await db.query(who, queries.RELEASE_LEASES, {"limit": LEASES_AT_ONCE})
    return row["affected"], f"{row['affected']} leases that had run out were returned."


async def _check_index(db: Database, who: Scope) -> tuple[int, str]:
    (row,) = await db.query(who, queries.CHECK_TERMS, {"limit": CHECKED_AT_ONCE})
    message = f"{row['repaired']} of {row['looked']} notes were read anew."
    if row["repaired"] and row["looked"] >= CHECKED_AT_ONCE:
        # Where so many were looked at and some were wrong, there may be more.
        place = Scope(tenant_id=who.tenant_id, project_id=who.project_id)
        async with db.tenant(place) as session:
            await enqueue(session, place, job=NewJob(kind="reindex", dedupe_key="reindex"))
        message += " All others are read anew in the background."
    return row["repaired"], message


async def _sweep(db: Database, who: Scope) -> tuple[int, str]:
    counts = await sweep(db, who)
    full = counts.pop("full")
    told = ", ".join(f"{name} {count}" for name, count in counts.items() if count) or "nothing was due"
    return sum(counts.values()), f"Purged: {told}.{' There is more.' if full else ''}"


async def _reembed(db: Database, who: Scope) -> tuple[int, str]:
    queued = await queue_missing(db, who)
    return queued, f"{queued} units without a vector were queued."


_REPAIRS: dict[Action, Callable[[Database, Scope], Awaitable[tuple[int, str]]]] = {
    "requeue-dead": _requeue_dead,
    "release-leases": _release_leases,
    "check-index": _check_index,
    "retention-sweep": _sweep,
    "reembed": _reembed,
}
