"""All SQL of maintenance."""

from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, insert, select, text

from app.db.database import Row, Session
from app.maintenance.tables import repairs

# The figures of a project's health.
DIAGNOSE = "SELECT * FROM diagnose_project(%(least)s::float8, %(sample)s, %(revivable)s, %(keep_days)s)"

# The steps of retention, each in its own transaction.
PURGE_LINKS = "SELECT * FROM purge_links(%(before)s, %(limit)s)"
PURGE_VECTORS = "SELECT purge_vectors(%(before)s, %(limit)s) AS vectors"
PURGE_NOTES = "SELECT * FROM purge_notes(%(before)s, %(limit)s)"
PURGE_OBJECTS = "SELECT * FROM purge_objects(%(before)s, %(limit)s)"
PURGE_HISTORY = "SELECT purge_history(%(before)s, %(limit)s) AS history"
PURGE_RECORDS = "SELECT purge_records(%(what)s, %(before)s, %(limit)s) AS purged"

# Responses stored for an Idempotency-Key whose time is over.
DELETE_EXPIRED_RESPONSES = text("DELETE FROM idempotency_keys k WHERE k.tenant_id = :tenant AND k.expires_at <= :now")
# Rate windows whose newest slot is older than this one.
DELETE_IDLE_WINDOWS = text("""
    DELETE FROM rate_windows w
    WHERE w.tenant_id = :tenant AND coalesce(w.slots[cardinality(w.slots)], 0) < :before""")

# The repairs.
REQUEUE_DEAD = "SELECT requeue_dead(%(limit)s) AS affected"
RELEASE_LEASES = "SELECT release_leases(%(limit)s) AS affected"
CHECK_TERMS = "SELECT * FROM check_terms(%(limit)s)"

# When an action last ran, how often within the hour, and when the first run of the hour was.
RECENT_RUNS = text("""
    SELECT max(r.created_at) AS last, count(*) FILTER (WHERE r.created_at > :hour_ago) AS runs,
           min(r.created_at) FILTER (WHERE r.created_at > :hour_ago) AS first
    FROM repairs r
    WHERE r.tenant_id = :tenant AND r.project_id = :project AND r.action = :action""")

# Scheduled repairs since the project was last healthy, newest first.
AUTOMATIC_RUNS = """
    SELECT r.action, coalesce(r.score_after > r.score_before, false) AS improved FROM repairs r
    WHERE r.tenant_id = %(tenant)s AND r.project_id = %(project)s AND r.requested_by = 'maintenance'
      AND r.action <> 'healthy'
      AND r.created_at > coalesce((
          SELECT max(h.created_at) FROM repairs h
          WHERE h.tenant_id = %(tenant)s AND h.project_id = %(project)s AND h.action = 'healthy'), '-infinity')
    ORDER BY r.created_at DESC, r.repair_id DESC LIMIT 1000"""


async def recent_runs(session: Session, *, tenant_id: str, project_id: str, action: str, hour_ago: datetime) -> Row:
    """Return when an action last ran, and how often within the hour."""
    params = {"tenant": tenant_id, "project": project_id, "action": action, "hour_ago": hour_ago}
    row = await session.row(RECENT_RUNS, params)
    assert row is not None
    return row


async def database_time(session: Session) -> datetime:
    """Return the time of the database, which all replicas share."""
    row = await session.row(select(func.clock_timestamp().label("now")))
    assert row is not None
    return row["now"]


async def insert_repair(session: Session, *, row: dict[str, Any]) -> None:
    """Insert the record of a repair."""
    await session.execute(insert(repairs).values(row))


async def replace_repair(session: Session, *, row: dict[str, Any]) -> None:
    """Replace the record of a repair with its result."""
    c = repairs.c
    await session.execute(delete(repairs).where(c.tenant_id == row["tenant_id"], c.repair_id == row["repair_id"]))
    await insert_repair(session, row=row)
