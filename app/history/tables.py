"""Tables of the room history: append-only."""

from sqlalchemy import (
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from app.db.metadata import metadata
from app.db.rls import Rule

fact_retractions = Table(
    "fact_retractions",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("retraction_id", Uuid(as_uuid=False), nullable=False),
    Column("fact_id", Uuid(as_uuid=False), nullable=False),
    Column("agent_id", Text, nullable=False, comment="the fact's agent, so that its policy holds here too"),
    Column("scope", Text, nullable=False),
    Column("garden_id", Uuid(as_uuid=False), nullable=True),
    Column("suppression", SmallInteger, nullable=False, server_default=text("0")),
    Column("kind", Text, nullable=False),
    Column("reason", Text, nullable=True),
    Column("retracted_by", Text, nullable=False),
    Column("confidence_before", Double, nullable=False),
    Column("retracted_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("tenant_id", "retraction_id"),
    ForeignKeyConstraint(
        ["tenant_id", "fact_id"], ["graph_facts.tenant_id", "graph_facts.fact_id"], ondelete="CASCADE"
    ),
    CheckConstraint("kind IN ('retracted', 'corrected', 'merged', 'decayed')", name="kind"),
    Index("fact_retractions_fact_idx", "tenant_id", "fact_id"),
    info={"rls": Rule.MEMORY, "grants": "SELECT"},
)

fact_derivations = Table(
    "fact_derivations",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("fact_id", Uuid(as_uuid=False), nullable=False),
    Column("source_hash", LargeBinary, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("tenant_id", "fact_id", "source_hash"),
    ForeignKeyConstraint(
        ["tenant_id", "fact_id"], ["graph_facts.tenant_id", "graph_facts.fact_id"], ondelete="CASCADE"
    ),
    Index("fact_derivations_source_idx", "tenant_id", "source_hash"),
    info={"rls": Rule.REACH, "grants": "SELECT"},
)

# Who did what: ids and counts, never content.
audit_log = Table(
    "audit_log",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("event_id", Uuid(as_uuid=False), nullable=False),
    Column("project_id", Text, nullable=True),
    Column("event_type", Text, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("details", JSONB, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("tenant_id", "event_id"),
    Index("audit_log_time_idx", "tenant_id", "created_at", "event_id"),
    info={"rls": Rule.TENANT, "grants": "SELECT"},
)
