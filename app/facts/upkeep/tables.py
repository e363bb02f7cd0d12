"""Tables of the upkeep of facts: sources, and what time does to facts."""

from sqlalchemy import (
    ARRAY,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
)

from app.db.metadata import metadata
from app.db.rls import Rule

# What is known of those who say things; facts name them in `source`.
sources = Table(
    "sources",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("source_id", Uuid(as_uuid=False), nullable=False),
    Column("source", Text(collation="C"), nullable=False),
    Column("identity", Text, nullable=False),
    Column("authority", Text, nullable=False),
    Column("agents", ARRAY(Text), nullable=False, comment="who may speak for it; nobody named: everybody"),
    Column("blocklisted", Boolean, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("tenant_id", "source_id"),
    UniqueConstraint("tenant_id", "project_id", "source", name="sources_source_key"),
    CheckConstraint(
        "identity IN ('signed_manifest', 'manifest', 'capability_token', 'local_key', 'syntactic', 'none')",
        name="identity",
    ),
    CheckConstraint("authority IN ('write_token', 'admin', 'same_authority', 'federated', 'other')", name="authority"),
    info={"rls": Rule.PROJECT, "grants": "SELECT, INSERT, UPDATE, DELETE"},
)

decay_policies = Table(
    "decay_policies",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("policy_id", Uuid(as_uuid=False), nullable=False),
    Column("relation", Text(collation="C"), nullable=False, comment="a predicate's name as it is compared, or *"),
    Column("scope", Text, nullable=False),
    Column("mode", Text, nullable=False),
    Column("ttl_s", Double, nullable=True),
    Column("half_life_s", Double, nullable=True),
    Column("min_confidence", Double, nullable=False),
    Column("exempt_relations", ARRAY(Text), nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("swept_at", DateTime(timezone=True), nullable=True),
    PrimaryKeyConstraint("tenant_id", "policy_id"),
    UniqueConstraint("tenant_id", "project_id", "relation", "scope", name="decay_policies_place_key"),
    CheckConstraint("mode IN ('retract', 'confidence', 'dry_run')", name="mode"),
    CheckConstraint(
        "scope = '*' OR scope IN ('agent_private', 'project_shared', 'org_shared', 'public')", name="scope"
    ),
    CheckConstraint("min_confidence >= 0 AND min_confidence <= 1", name="min_confidence"),
    info={"rls": Rule.PROJECT, "grants": "SELECT, INSERT, UPDATE, DELETE"},
)
