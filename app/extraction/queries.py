"""All SQL of the pipeline; its upkeep has its own."""

from datetime import datetime
from typing import Any

from sqlalchemy import Uuid, and_, insert, literal, select, tuple_, update

from app.db.database import Row, Session
from app.extraction.tables import memory_reviews

# What an extraction begins with: the note as a model may see it, settings and spent tokens.
READ_EXTRACTION = "SELECT * FROM read_extraction(%(tenant)s, %(project)s, %(note)s::uuid, %(patterns)s::text[])"
# Notes that are like a statement.
SIMILAR = """
    SELECT * FROM similar_notes(%(tenant)s, %(project)s, %(text)s, %(model)s::smallint, %(dimensions)s::int, %(vector)s,
                                %(scope)s, %(owner)s, %(skipped)s::uuid[], %(patterns)s::text[], %(limit)s)"""
# Puts calls of a model on record.
RECORD_CALLS = """
    SELECT record_llm_calls(%(tenant)s, %(project)s, %(job)s::uuid, %(model)s, %(calls)s::json)"""
# What models have cost, by day and model.
USAGE = """
    SELECT u.day, u.model, u.calls, u.failures, u.input_tokens, u.output_tokens FROM llm_usage u
    WHERE u.tenant_id = %(tenant)s AND u.project_id = %(project)s
      AND u.day >= %(since)s::date AND u.day < %(until)s::date
    ORDER BY u.day DESC, u.model LIMIT 1000"""
# Tokens a project has spent in its period.
SPENT = "SELECT spent_tokens(%(tenant)s, %(project)s, %(period)s) AS tokens"

REVIEW = (
    "review_id", "note_id", "target_note_id", "target_version", "action", "content", "content_type", "confidence",
    "reason", "extraction_model", "scope", "garden_id", "agent_id", "status", "decided_by", "decision_reason",
    "created_at", "decided_at",
)  # fmt: skip
_shown = [memory_reviews.c[name] for name in REVIEW]


async def insert_reviews(session: Session, *, rows: list[Row]) -> None:
    """Puts proposals into the queue of reviews."""
    await session.execute(insert(memory_reviews).values(rows))


def select_reviews(
    *, tenant_id: str, project_id: str, status: str | None, after: tuple[datetime, str] | None, limit: int
) -> Any:
    """Reviews in the caller's reach, the newest first."""
    c = memory_reviews.c
    conditions: list[Any] = [c.tenant_id == tenant_id, c.project_id == project_id]
    if status is not None:
        conditions.append(c.status == status)
    if after is not None:
        position = tuple_(literal(after[0]), literal(after[1], Uuid(as_uuid=False)))
        conditions.append(tuple_(c.created_at, c.review_id) < position)
    return select(*_shown).where(and_(*conditions)).order_by(c.created_at.desc(), c.review_id.desc()).limit(limit)


def select_review(*, tenant_id: str, review_id: str) -> Any:
    """One review."""
    c = memory_reviews.c
    return select(*_shown).where(c.tenant_id == tenant_id, c.review_id == review_id)


async def lock_review(session: Session, *, tenant_id: str, review_id: str) -> Row | None:
    """One review, locked until the transaction ends."""
    return await session.row(select_review(tenant_id=tenant_id, review_id=review_id).with_for_update())


async def decide_review(session: Session, *, tenant_id: str, review_id: str, **values: Any) -> Row:
    """Ends a review."""
    c = memory_reviews.c
    row = await session.row(
        update(memory_reviews)
        .where(c.tenant_id == tenant_id, c.review_id == review_id)
        .values(**values)
        .returning(*_shown)
    )
    assert row is not None
    return row
