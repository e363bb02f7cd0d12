"""Enqueueing of jobs, in the transaction that makes them necessary."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from app.access import new_id
from app.db.database import Session
from app.db.scope import Scope
from app.errors import Conflict
from app.jobs import queries


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to enqueue."""

    kind: str
    payload: dict[str, Any] = msgspec.field(default_factory=dict)
    dedupe_key: str | None = None
    """While a job of this kind with this key is open in the project, no second one is enqueued."""
    priority: int = 0
    max_attempts: int = 5
    available_at: datetime | None = None


async def enqueue(session: Session, who: Scope, *, job: NewJob) -> str:
    """Enqueue a job and return its id, or the id of the open job with the same dedupe key."""
    # The open job may finish between the two statements; then ours can be inserted after all.
    for _ in range(3):
        made = await enqueue_all(session, who, jobs=[job])
        if made:
            return made[0]
        assert job.dedupe_key is not None
        found = await queries.find_open_job(
            session, tenant_id=who.tenant_id, project_id=who.project_id, kind=job.kind, dedupe_key=job.dedupe_key
        )
        if found is not None:
            return found
    raise Conflict(
        "Other jobs with the same dedupe key keep starting and finishing; try again.", code="job_already_open"
    )


async def enqueue_all(session: Session, who: Scope, *, jobs: Sequence[NewJob]) -> list[str]:
    """Enqueue jobs in one statement and return the ids of those whose dedupe key was not open already."""
    if not jobs:
        return []
    now = datetime.now(UTC)
    created_by = getattr(who, "key_id", "service")
    rows = [
        {
            "tenant_id": who.tenant_id,
            "job_id": new_id(),
            "project_id": who.project_id,
            "agent_id": who.agent_id,
            "user_id": who.owner_user,
            "kind": job.kind,
            "payload": job.payload,
            "priority": job.priority,
            "dedupe_key": job.dedupe_key,
            "available_at": job.available_at or now,
            "max_attempts": job.max_attempts,
            "created_by": created_by,
            "created_at": now,
        }
        for job in jobs
    ]
    session.wake_workers()
    return await queries.insert_jobs(session, rows=rows)
