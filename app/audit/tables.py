"""Tables of the audit log and the head of each tenant's chain."""

from typing import get_args

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Index,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from app.audit.events import EventType
from app.db.metadata import metadata
from app.db.rls import Rule

_LIST_OF_EVENTS = ", ".join(f"'{name}'" for name in get_args(EventType))

# Ids and counts, never content. Written by security definer functions; numbered and chained when sealed.
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
    Column("sequence", BigInteger, nullable=True, comment="its place in the tenant's chain; NULL until sealed"),
    Column("previous_hash", LargeBinary, nullable=True),
    Column("hash", LargeBinary, nullable=True),
    Column("sealed_at", DateTime(timezone=True), nullable=True),
    PrimaryKeyConstraint("tenant_id", "event_id"),
    CheckConstraint(f"event_type IN ({_LIST_OF_EVENTS})", name="event_type"),
    CheckConstraint("sequence > 0", name="sequence"),
    Index("audit_log_time_idx", "tenant_id", "created_at", "event_id"),
    Index("audit_log_sequence_key", "tenant_id", "sequence", unique=True),
    Index("audit_log_unsealed_idx", "tenant_id", "created_at", "event_id", postgresql_where=text("sequence IS NULL")),
    info={"rls": Rule.REACH, "grants": "SELECT"},
)

# The head of each tenant's chain: number and hash of the last sealed event.
audit_chains = Table(
    "audit_chains",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    PrimaryKeyConstraint("tenant_id"),
    info={"rls": Rule.TENANT, "grants": "SELECT"},
)
