"""Removal of stored responses and rate windows that nothing can use any more."""

from datetime import datetime

from app.db.database import Session
from app.jobs.schedule import idle_slot
from app.maintenance import queries


async def clear_expired(session: Session, *, tenant_id: str, now: datetime) -> None:
    """Delete a tenant's expired responses of Idempotency-Keys and the rate windows of keys that went unused."""
    await session.execute(queries.DELETE_EXPIRED_RESPONSES, {"tenant": tenant_id, "now": now})
    await session.execute(queries.DELETE_IDLE_WINDOWS, {"tenant": tenant_id, "before": idle_slot(now)})
