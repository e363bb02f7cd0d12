"""The table of decay policies."""

from sqlalchemy import (
    ARRAY,
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
