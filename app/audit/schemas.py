"""Events of the audit log on the wire."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from app.audit.events import EventType
from app.paging import Total


class EventRead(msgspec.Struct, frozen=True, kw_only=True):
    sequence: int
    """Its place in the tenant's chain."""
    event_id: UUID
    event_type: EventType
    project_id: str | None
    key_id: str
    agent_id: str
    details: dict[str, Any]
    created_at: datetime
    previous_hash: str
    hash: str
    """SHA-256 over the line and the hash before it."""


class EventList(msgspec.Struct, frozen=True, kw_only=True):
    events: list[EventRead]
    next_cursor: str | None
    total: Total | UnsetType = UNSET
