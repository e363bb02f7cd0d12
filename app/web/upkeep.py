"""Upkeep of the edge's own tables, run by the maintenance job of each tenant."""

from datetime import datetime, timedelta

from app.db.database import Session
from app.web import queries

WINDOW_IDLE = timedelta(days=1)


def idle_slot(now: datetime) -> int:
    """The slot of two seconds before which a rate window counts as idle."""
    return int((now - WINDOW_IDLE).timestamp() // 2)


async def clear_expired(session: Session, *, tenant_id: str, now: datetime) -> None:
    """Removes stored answers past their day and rate windows nobody draws from."""
    await queries.delete_expired_answers(session, tenant_id=tenant_id, now=now)
    await queries.delete_idle_windows(session, tenant_id=tenant_id, before_slot=idle_slot(now))
