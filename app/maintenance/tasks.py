"""The jobs of maintenance: retention of a tenant, and the maintenance cycle of a project."""

from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog

from app.access import new_id
from app.db.database import Database, Row
from app.db.scope import Scope
from app.errors import Conflict, RateLimited
from app.jobs.registry import Job, JobContext, Registry
from app.maintenance import queries, repairs
from app.maintenance.diagnostics import diagnose
from app.maintenance.expiry import clear_expired
from app.maintenance.options import DEFAULTS, MaintenanceOptions
from app.maintenance.retention import sweep
from app.maintenance.schemas import Action, Diagnostics
from app.recall.tasks import clear_traces
from app.tenancy.settings import PipelineSettings, find_settings

log: structlog.stdlib.BoundLogger = structlog.get_logger()

REQUESTED_BY = "maintenance"
MAX_USELESS_RUNS = 3


async def retain(job: Job, *, options: MaintenanceOptions = DEFAULTS) -> None:
    """Sweep a tenant once; a full step makes the next sweep due at once."""
    job.result = await sweep(job.db, job.scope, retention=options.retention)
    async with job.finishing():
        pass


async def maintenance_cycle(job: Job, *, options: MaintenanceOptions = DEFAULTS) -> None:
    """Run a maintenance cycle of a project that enables it."""
    settings = await find_settings(job.db, job.scope)
    if not settings.autonomous_enabled or settings.autonomous_frozen:
        job.result = {"skipped": "not_autonomous"}
    else:
        job.result = await run_cycle(job.db, job.scope, settings=settings, options=options)
    async with job.finishing():
        pass


async def run_cycle(
    db: Database, who: Scope, *, settings: PipelineSettings, options: MaintenanceOptions = DEFAULTS
) -> Row:
    """Diagnose a project, run the recommended repairs in mode execute, and return a report."""
    before = await diagnose(db, who, options=options)
    report: Row = {
        "mode": settings.maintenance_mode,
        "score": before.score,
        "status": before.status,
        "recommendations": [item.action for item in before.recommendations],
        "warnings": [item.code for item in before.warnings],
    }
    project = {"tenant": who.tenant_id, "project": who.project_id}
    runs = await db.query(who, queries.AUTOMATIC_RUNS, project)
    if not before.recommendations and runs:
        # A healthy project resets halted repairs.
        await _mark_healthy(db, who)
    if before.recommendations:
        place = {"tenant_id": who.tenant_id, "project_id": who.project_id}
        log.info("maintenance_recommends", **place, **{k: report[k] for k in ("mode", "score", "recommendations")})
        if settings.maintenance_mode == "execute":
            report |= await _execute(db, who, before=before, halted=find_halted(runs), options=options)
    return report


def find_halted(runs: list[Row]) -> set[str]:
    """Return the actions whose last three scheduled runs did not improve the score; runs are newest first."""
    last: dict[str, list[bool]] = {}
    for run in runs:
        last.setdefault(run["action"], []).append(run["improved"])
    return {
        action
        for action, improved in last.items()
        if len(improved) >= MAX_USELESS_RUNS and not any(improved[:MAX_USELESS_RUNS])
    }


async def _execute(
    db: Database, who: Scope, *, before: Diagnostics, halted: set[str], options: MaintenanceOptions
) -> Row:
    done: list[repairs.RepairRun] = []
    report: list[dict[str, Any]] = []
    for item in before.recommendations:
        outcome: dict[str, Any]
        if item.action in halted:
            outcome = {"skipped": "halted"}
        else:
            outcome = await _attempt(db, who, item.action, done, options)
        report.append({"action": item.action, **outcome})
    after = await diagnose(db, who, options=options)
    async with db.tenant(who) as session:
        for run in done:
            scored = {**run.row, "score_before": before.score, "score_after": after.score}
            await queries.replace_repair(session, row=scored)
    log.info("maintenance_repaired", tenant_id=who.tenant_id, project_id=who.project_id, repairs=report)
    return {"repairs": report, "score_after": after.score, "halted": sorted(halted)}


async def _attempt(
    db: Database, who: Scope, action: Action, done: list[repairs.RepairRun], options: MaintenanceOptions
) -> dict[str, Any]:
    try:
        run = await repairs.run(db, who, action=action, requested_by=REQUESTED_BY, options=options)
    except (RateLimited, Conflict) as problem:
        return {"skipped": problem.code}
    done.append(run)
    return {"success": run.result.success, "affected": run.result.affected}


async def _mark_healthy(db: Database, who: Scope) -> None:
    async with db.tenant(who) as session:
        now = await queries.database_time(session)
        row = {
            "tenant_id": who.tenant_id,
            "repair_id": new_id(),
            "project_id": who.project_id,
            "action": "healthy",
            "success": True,
            "affected": 0,
            "message": "The project is healthy, so halted repairs may run again.",
            "requested_by": REQUESTED_BY,
            "created_at": now,
        }
        await queries.insert_repair(session, row=row)


async def clear_expired_rows(job: Job) -> None:
    """Remove a tenant's expired recall traces, stored responses and idle rate windows."""
    await clear_traces(job)
    async with job.finishing() as session:
        await clear_expired(session, tenant_id=job.scope.tenant_id, now=datetime.now(UTC))


def register_jobs(registry: Registry, context: JobContext) -> None:
    """Register the jobs of maintenance."""
    options = MaintenanceOptions.of(context.settings)
    registry.register("maintenance", clear_expired_rows)
    registry.register("retention", partial(retain, options=options))
    registry.register("maintenance_cycle", partial(maintenance_cycle, options=options))
