"""Tables of types: a tenant's own, which override those of the whole installation."""

from typing import Any

from sqlalchemy import (
    ARRAY,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from app.db.metadata import metadata
from app.db.rls import Rule

_NAME = Text(collation="C")


def _version() -> list[Any]:
    return [
        Column("type", _NAME, nullable=False),
        Column("version", Integer, nullable=False),
        Column("status", Text, nullable=False),
        Column("description", Text, nullable=True),
        Column("json_schema", JSONB, nullable=True, comment="NULL: any properties"),
        Column("created_by", Text, nullable=False),
        Column("created_at", DateTime(timezone=True), nullable=False),
        CheckConstraint("status IN ('active', 'retired')", name="status"),
    ]


def _object_type() -> list[Any]:
    return [
        Column("embedding_policy", Text, nullable=False, server_default=text("'optional'")),
        Column("embedding_relevant_paths", ARRAY(Text), nullable=True, comment="JSON Pointers; NULL: all properties"),
        Column("fts_enabled", Boolean, nullable=False, server_default=text("true")),
        CheckConstraint("embedding_policy IN ('required', 'optional', 'disabled')", name="embedding_policy"),
    ]


def _relationship_type() -> list[Any]:
    return [
        Column("allowed_src_types", ARRAY(Text), nullable=False, comment="none named: any"),
        Column("allowed_dst_types", ARRAY(Text), nullable=False),
        Column("multiplicity_src", Text, nullable=False, comment="one: at most one from an object"),
        Column("multiplicity_dst", Text, nullable=False, comment="one: at most one to an object"),
        # Ranking of neighbours.
        Column("base_weight", Double, nullable=True),
        Column("allow_neighbor", Boolean, nullable=False, server_default=text("true")),
        Column("max_depth_allowed", Integer, nullable=True),
        Column("reciprocal_boost", Double, nullable=True),
        CheckConstraint("multiplicity_src IN ('one', 'many')", name="multiplicity_src"),
        CheckConstraint("multiplicity_dst IN ('one', 'many')", name="multiplicity_dst"),
    ]


def _active(name: str, *columns: str) -> Index:
    return Index(name, *columns, unique=True, postgresql_where=text("status = 'active'"))


object_type_schemas = Table(
    "object_type_schemas",
    metadata,
    Column("tenant_id", Text, nullable=False),
    *_version(),
    *_object_type(),
    PrimaryKeyConstraint("tenant_id", "type", "version"),
    _active("object_type_schemas_active_key", "tenant_id", "type"),
    info={"rls": Rule.TENANT, "grants": "SELECT, INSERT, UPDATE"},
)

relationship_type_schemas = Table(
    "relationship_type_schemas",
    metadata,
    Column("tenant_id", Text, nullable=False),
    *_version(),
    *_relationship_type(),
    PrimaryKeyConstraint("tenant_id", "type", "version"),
    _active("relationship_type_schemas_active_key", "tenant_id", "type"),
    info={"rls": Rule.TENANT, "grants": "SELECT, INSERT, UPDATE"},
)

# Types of the whole installation: the operator registers them, tenants use or override them.
global_object_type_schemas = Table(
    "global_object_type_schemas",
    metadata,
    *_version(),
    *_object_type(),
    PrimaryKeyConstraint("type", "version"),
    _active("global_object_type_schemas_active_key", "type"),
    info={"grants": "SELECT"},
)

global_relationship_type_schemas = Table(
    "global_relationship_type_schemas",
    metadata,
    *_version(),
    *_relationship_type(),
    PrimaryKeyConstraint("type", "version"),
    _active("global_relationship_type_schemas_active_key", "type"),
    info={"grants": "SELECT"},
)
