"""All SQL of extraction."""

from datetime import datetime
from typing import Any

from sqlalchemy import Uuid, and_, insert, literal, select, tuple_, update

from app.db.database import Row, Session
from app.extraction.tables import memory_reviews

# The redacted note, the project's settings and its spent tokens.
READ_EXTRACTION = "SELECT * FROM read_extraction(%(tenant)s, %(project)s, %(note)s::uuid, %(patterns)s::text[])"
# Notes that are similar to a statement.
SIMILAR = """
    SELECT * FROM similar_notes(%(tenant)s, %(project)s, %(text)s, %(model)s::smallint, %(dimensions)s::int, %(vector)s,
                                %(scope)s, %(owner)s, %(skipped)s::uuid[], %(patterns)s::text[], %(limit)s)"""
# Record calls of a model.
RECORD_CALLS = """
    SELECT record_llm_calls(%(tenant)s, %(project)s, %(job)s::uuid, %(model)s, %(calls)s::json)"""
# Usage by day and model.
USAGE = """
    SELECT u.day, u.model, u.calls, u.failures, u.input_tokens, u.output_tokens FROM llm_usage u
    WHERE u.tenant_id = %(tenant)s AND u.project_id = %(project)s
      AND u.day >= %(since)s::date AND u.day < %(until)s::date
    ORDER BY u.day DESC, u.model LIMIT 1000"""
# Tokens a project has spent in its budget period.
SPENT = "SELECT spent_tokens(%(tenant)s, %(project)s, %(period)s) AS tokens"

REVIEW_COLUMNS = (
    "review_id", "note_id", "target_note_id", "target_version", "action", "content", "content_type", "confidence",
    "reason", "extraction_model", "scope", "garden_id", "agent_id", "status", "decided_by", "decision_reason",
    "created_at", "decided_at",
)  # fmt: skip
_review_columns = [memory_reviews.c[name] for name in (*REVIEW_COLUMNS, "user_id")]


async def insert_reviews(session: Session, *, rows: list[Row]) -> None:
    """Insert reviews."""
    await session.execute(insert(memory_reviews).values(rows))


def select_reviews(
    *, tenant_id: str, project_id: str, status: str | None, after: tuple[datetime, str] | None, limit: int
) -> Any:
    """Select reviews that the caller can see, newest first."""
    c = memory_reviews.c
    conditions: list[Any] = [c.tenant_id == tenant_id, c.project_id == project_id]
    if status is not None:
        conditions.append(c.status == status)
    if after is not None:
        position = tuple_(literal(after[0]), literal(after[1], Uuid(as_uuid=False)))
        conditions.append(tuple_(c.created_at, c.review_id) < position)
    return (
        select(*_review_columns).where(and_(*conditions)).order_by(c.created_at.desc(), c.review_id.desc()).limit(limit)
    )


def select_review(*, tenant_id: str, review_id: str) -> Any:
    """Select one review."""
    c = memory_reviews.c
    return select(*_review_columns).where(c.tenant_id == tenant_id, c.review_id == review_id)


async def lock_review(session: Session, *, tenant_id: str, review_id: str) -> Row | None:
    """Lock one review until the transaction ends and return it."""
    return await session.row(select_review(tenant_id=tenant_id, review_id=review_id).with_for_update())


async def decide_review(session: Session, *, tenant_id: str, review_id: str, **values: Any) -> Row:
    """Set the decision of a review and return it."""
    c = memory_reviews.c
    row = await session.row(
        update(memory_reviews)
        .where(c.tenant_id == tenant_id, c.review_id == review_id)
        .values(**values)
        .returning(*_review_columns)
    )
    assert row is not None
    return row
