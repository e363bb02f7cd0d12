"""The table of sources."""

from sqlalchemy import (
    ARRAY,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
)

from app.db.metadata import metadata
from app.db.rls import Rule

# Registered sources, which facts name in `source`.
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
