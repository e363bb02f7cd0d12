"""Wire types of jobs, without the payload, which may hold content that the caller must not read."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from app.paging import Total

Status = Literal["pending", "leased", "completed", "failed", "dead", "cancelled"]


class JobRead(msgspec.Struct, frozen=True, kw_only=True):
    """A job: work that was accepted and runs in the background."""

    job_id: UUID
    project_id: str | None
    kind: str
    status: Status
    priority: int
    attempts: int
    max_attempts: int
    created_by: str
    last_error: str | None
    created_at: datetime
    available_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    result: dict[str, Any] | None
    """The result: counts, warnings and costs, never content."""


class JobChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was cancelled or put back into the queue."""

    job: JobRead


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jobs, newest first."""

    jobs: list[JobRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET
