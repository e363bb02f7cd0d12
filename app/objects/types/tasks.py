"""Jobs of types: describe existing objects anew after a change of what their type says about search."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from app.db.database import Row, Session
from app.db.retries import retried
from app.jobs.queue import NewJob, enqueue, enqueue_all
from app.jobs.registry import Job, JobContext, Postponed, Registry
from app.objects.content import describe_for_search
from app.objects.diff import encode_canonical
from app.objects.types import queries
from app.objects.types.search_settings import JOB, find_type, hash_settings

# Small enough for the statement timeout even if every object has 256 KiB.
DESCRIBED_AT_ONCE = 50
TURN_SECONDS = 30.0
START = "00000000-0000-0000-0000-000000000000"
# A write that began before the change may commit after the job has passed; none takes this long.
REPEAT_AFTER = timedelta(minutes=2)


async def describe_objects(job: Job) -> None:
    """Describe the live objects of a type anew, in steps that each keep their place.

    A step that finds other settings than the job was made for ends it: the change that made them has its own job.
    """
    started = time.monotonic()
    while await retried(lambda: _describe_next(job)):
        if time.monotonic() - started > TURN_SECONDS:
            raise Postponed(datetime.now(UTC))
    job.result = {"looked": job.payload.get("looked", 0), "described": job.payload.get("described", 0)}
    async with job.finishing() as session:
        await _recount(session, job)
        if not job.payload.get("repeated"):
            payload = {name: job.payload[name] for name in ("type", "settings")} | {"repeated": True}
            later = NewJob(kind=JOB, payload=payload, available_at=datetime.now(UTC) + REPEAT_AFTER)
            await enqueue(session, job.scope, job=later)


async def _describe_next(job: Job) -> bool:
    """Describe the next objects in one transaction; return False when there are no more, or others' settings count."""
    name, place = job.payload["type"], {"after": job.payload.get("after", START), "limit": DESCRIBED_AT_ONCE}
    async with job.holding() as session:
        found = await session.row(queries.LOCK_OBJECTS, {"type": name, **place})
        # After the objects are locked: who changes the type from here on has a job that comes to them later.
        object_type = await find_type(session, job.scope, name=name)
        if found is None or found["last"] is None or hash_settings(object_type) != job.payload["settings"]:
            return False
        objects: list[Row] = found["objects"] or []
        changed: list[Row] = []
        for row in objects:
            changed += _changes(row, object_type)
            await asyncio.sleep(0)
        if changed:
            await session.execute(queries.DESCRIBE_OBJECTS, {"rows": encode_canonical(changed).decode()})
        projects = {row["project_id"] for row in changed if row["project_id"] is not None}
        await job.keep(
            session,
            after=str(found["last"]),
            looked=job.payload.get("looked", 0) + len(objects),
            described=job.payload.get("described", 0) + len(changed),
            projects=sorted({*job.payload.get("projects", []), *projects}),
        )
    return True


def _changes(row: Row, object_type: Row | None) -> list[dict[str, Any]]:
    """Return what to store for an object, or nothing when it is described so already."""
    described = describe_for_search(row, object_type)
    embedded = described["embed_text"] != row["embed_text"]
    if not embedded and described["searched"] == row["searched"]:
        return []
    place = {name: row[name] for name in ("canonical_id", "branch_id", "project_id")}
    return [{**place, **described, "embedded": embedded}]


async def _recount(session: Session, job: Job) -> None:
    """Queue the counting of terms in the projects whose objects changed."""
    jobs = [
        NewJob(kind="recount", payload={"project_id": project}, dedupe_key=f"recount {project}")
        for project in job.payload.get("projects", [])
    ]
    await enqueue_all(session, job.scope, jobs=jobs)


def register_jobs(registry: Registry, _: JobContext) -> None:
    """Register the jobs of types."""
    registry.register(JOB, describe_objects)
