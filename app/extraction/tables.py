"""Tables of extraction: reviews, calls of models and their usage."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Double,
    ForeignKeyConstraint,
    Index,
    Integer,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)

from app.db.metadata import metadata, user_column
from app.db.rls import Rule

# Proposed changes of notes that need a decision; hidden when the source or the target note is.
memory_reviews = Table(
    "memory_reviews",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("review_id", Uuid(as_uuid=False), nullable=False),
    Column("project_id", Text, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("garden_id", Uuid(as_uuid=False), nullable=True),
    Column("suppression", SmallInteger, nullable=False, server_default=text("0")),
    Column("note_id", Uuid(as_uuid=False), nullable=False, comment="the note the proposal comes from"),
    Column("target_note_id", Uuid(as_uuid=False), nullable=False),
    Column("target_version", Integer, nullable=False),
    Column("action", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("content_type", Text, nullable=False),
    Column("confidence", Double, nullable=False),
    Column("reason", Text, nullable=False),
    Column("extraction_model", Text, nullable=False),
    Column("status", Text, nullable=False, server_default=text("'pending'")),
    Column("decided_by", Text, nullable=True),
    Column("decision_reason", Text, nullable=True),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("decided_at", DateTime(timezone=True), nullable=True),
    user_column(),
    PrimaryKeyConstraint("tenant_id", "review_id"),
    ForeignKeyConstraint(
        ["tenant_id", "note_id"], ["memory_notes.tenant_id", "memory_notes.note_id"], ondelete="CASCADE"
    ),
    ForeignKeyConstraint(
        ["tenant_id", "target_note_id"], ["memory_notes.tenant_id", "memory_notes.note_id"], ondelete="CASCADE"
    ),
    CheckConstraint("scope IN ('agent_private', 'project_shared', 'org_shared', 'public')", name="scope"),
    CheckConstraint("action IN ('update', 'delete')", name="action"),
    CheckConstraint("status IN ('pending', 'approved', 'rejected')", name="status"),
    Index("memory_reviews_user_idx", "tenant_id", "project_id", "user_id", postgresql_where=text("user_id <> ''")),
    Index("memory_reviews_list_idx", "tenant_id", "project_id", "created_at", "review_id"),
    Index("memory_reviews_note_idx", "tenant_id", "note_id"),
    Index("memory_reviews_target_idx", "tenant_id", "target_note_id"),
    info={"rls": Rule.USER_MEMORY, "grants": "SELECT, INSERT, UPDATE"},
)

llm_calls = Table(
    "llm_calls",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("call_id", Uuid(as_uuid=False), nullable=False),
    Column("project_id", Text, nullable=False),
    Column("job_id", Uuid(as_uuid=False), nullable=True),
    Column("purpose", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("input_tokens", Integer, nullable=False),
    Column("output_tokens", Integer, nullable=False),
    Column("succeeded", Boolean, nullable=False),
    Column("duration_ms", Integer, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("tenant_id", "call_id"),
    Index("llm_calls_time_idx", "tenant_id", "project_id", "created_at"),
    info={"rls": Rule.PROJECT, "grants": "SELECT, INSERT, DELETE"},
)

# Usage by day, which token budgets are compared with.
llm_usage = Table(
    "llm_usage",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("day", Date, nullable=False),
    Column("model", Text, nullable=False),
    Column("calls", BigInteger, nullable=False),
    Column("failures", BigInteger, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant_id", "project_id", "day", "model"),
    info={"rls": Rule.REACH, "grants": "SELECT, INSERT, UPDATE"},
)
