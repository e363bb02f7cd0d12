"""Tables of the room history: what was taken back, what came from what, what was forgotten, and who did what."""

from typing import get_args

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
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
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from app.audit.recording import EventType
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
    CheckConstraint("kind IN ('retracted', 'corrected', 'merged', 'decayed', 'resolved')", name="kind"),
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
    Column("kind", Text, nullable=False, server_default=text("'derived'")),
    Column("suppression", SmallInteger, nullable=False, server_default=text("0")),
    PrimaryKeyConstraint("tenant_id", "fact_id", "source_hash", "kind"),
    ForeignKeyConstraint(
        ["tenant_id", "fact_id"], ["graph_facts.tenant_id", "graph_facts.fact_id"], ondelete="CASCADE"
    ),
    CheckConstraint("kind IN ('derived', 'resolves')", name="kind"),
    Index("fact_derivations_source_idx", "tenant_id", "source_hash"),
    info={"rls": Rule.NAMES, "grants": "SELECT"},
)

_LIST_OF_EVENTS = ", ".join(f"'{name}'" for name in get_args(EventType))

# Who did what: ids and counts, never content. Written by definer functions; numbered and chained when sealed.
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

# The head of each tenant's chain: what the last sealed line must be.
audit_chains = Table(
    "audit_chains",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    PrimaryKeyConstraint("tenant_id"),
    info={"rls": Rule.TENANT, "grants": "SELECT"},
)

# No foreign key to the entity: the tombstone outlives it.
tombstones = Table(
    "tombstones",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("tombstone_id", Uuid(as_uuid=False), nullable=False),
    Column("project_id", Text, nullable=False),
    Column("entity_id", Uuid(as_uuid=False), nullable=False),
    Column("entity", Text, nullable=True, comment="its name; nothing once it is erased"),
    Column("scopes", ARRAY(Text), nullable=True, comment="NULL: all"),
    Column("reason", Text, nullable=False, comment="empty once the entity is erased"),
    Column("created_by", Text, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("legal_hold", Boolean, nullable=False),
    Column("erase", Boolean, nullable=False),
    Column("erase_at", DateTime(timezone=True), nullable=True),
    Column("erased_at", DateTime(timezone=True), nullable=True),
    Column("named", Boolean, nullable=False, comment="notes that only name it count as mentioning it"),
    PrimaryKeyConstraint("tenant_id", "tombstone_id"),
    CheckConstraint("NOT (legal_hold AND erase)", name="erase"),
    Index("tombstones_entity_idx", "tenant_id", "entity_id"),
    Index("tombstones_list_idx", "tenant_id", "project_id", "created_at", "tombstone_id"),
    info={"rls": Rule.CUSTODY, "grants": "SELECT"},
)

tombstone_revocations = Table(
    "tombstone_revocations",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("revocation_id", Uuid(as_uuid=False), nullable=False),
    Column("project_id", Text, nullable=False),
    Column("tombstone_id", Uuid(as_uuid=False), nullable=False),
    Column("reason", Text, nullable=False),
    Column("revoked_by", Text, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("revoked_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("tenant_id", "revocation_id"),
    UniqueConstraint("tenant_id", "tombstone_id", name="tombstone_revocations_tombstone_key"),
    ForeignKeyConstraint(["tenant_id", "tombstone_id"], ["tombstones.tenant_id", "tombstones.tombstone_id"]),
    info={"rls": Rule.CUSTODY, "grants": "SELECT"},
)

erasure_receipts = Table(
    "erasure_receipts",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("receipt_id", Uuid(as_uuid=False), nullable=False),
    Column("project_id", Text, nullable=False),
    Column("tombstone_id", Uuid(as_uuid=False), nullable=False),
    Column("signed", Text, nullable=False, comment="the receipt, as the very text that was signed"),
    Column("signature", LargeBinary, nullable=False),
    Column("public_key", LargeBinary, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("tenant_id", "receipt_id"),
    UniqueConstraint("tenant_id", "tombstone_id", name="erasure_receipts_tombstone_key"),
    ForeignKeyConstraint(["tenant_id", "tombstone_id"], ["tombstones.tenant_id", "tombstones.tombstone_id"]),
    info={"rls": Rule.CUSTODY, "grants": "SELECT"},
)
