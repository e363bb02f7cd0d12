"""All SQL of sources."""

from typing import Any

from sqlalchemy import select, text
from sqlalchemy.dialects.postgresql import insert as upsert

from app.db.counts import COUNT_LIMIT, count_query
from app.db.database import Row, Session
from app.facts.sources.tables import sources

# Read what the trust in sources is computed from.
JUDGE_SOURCES = "SELECT * FROM judge_sources(%(sources)s::text[])"
# Store the trust of a source in one batch of its facts.
REFRESH_TRUST = text(
    "SELECT * FROM refresh_trust(:source, CAST(:agents AS text[]), :trust, :otherwise, CAST(:after AS uuid), :limit)"
)
# The sources that facts of a project name, or that one fact names, in order.
FACT_SOURCES = "SELECT source FROM list_fact_sources(%(fact)s::uuid, %(after)s, %(limit)s)"
# The trust mode of a project, locked against changes until the transaction ends.
LOCK_TRUST_MODE = """
    SELECT coalesce(p.settings ->> 'trust_mode', 'off') AS trust_mode FROM projects p
    WHERE p.tenant_id = %(tenant)s AND p.project_id = %(project)s FOR SHARE"""
# Registered sources of a project by name, its pipeline included.
_LIST_SOURCES = text(
    "SELECT s.* FROM registered_sources(:tenant, :project) s WHERE s.source > :after ORDER BY s.source LIMIT :limit"
)
_COUNT_SOURCES = text(count_query(_LIST_SOURCES.text))


async def put_source(session: Session, *, row: Row) -> tuple[Row, bool]:
    """Insert or update a source; return it, and whether it is new."""
    changes = {name: row[name] for name in ("identity", "authority", "agents", "blocklisted", "updated_at")}
    statement = (
        upsert(sources)
        .values(row)
        .on_conflict_do_update(constraint="sources_source_key", set_=changes)
        .returning(sources)
    )
    made = await session.row(statement)
    assert made is not None
    return made, str(made["source_id"]) == row["source_id"]


def select_sources(*, tenant_id: str, project_id: str, after: str, limit: int) -> Any:
    """Return the query for the sources of a project by name."""
    return _LIST_SOURCES.bindparams(tenant=tenant_id, project=project_id, after=after, limit=limit)


def count_sources(*, tenant_id: str, project_id: str) -> Any:
    """Return the query that counts the sources of a project."""
    return _COUNT_SOURCES.bindparams(tenant=tenant_id, project=project_id, after="", limit=COUNT_LIMIT)


def select_source(*, tenant_id: str, project_id: str, source_id: str) -> Any:
    """Return the query for one source by its id."""
    c = sources.c
    return select(sources).where(c.tenant_id == tenant_id, c.project_id == project_id, c.source_id == source_id)


async def lock_source(session: Session, *, tenant_id: str, project_id: str, source_id: str) -> Row | None:
    """Return one source, locked against changes until the transaction ends, or None."""
    statement = select_source(tenant_id=tenant_id, project_id=project_id, source_id=source_id)
    return await session.row(statement.with_for_update(read=True))
