"""Tables of predicates: of projects, of tenants, and of the whole installation."""

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Index,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from app.db.metadata import metadata
from app.db.rls import Rule
from app.facts.columns import NAME, id_column, time_column

graph_predicates = Table(
    "graph_predicates",
    metadata,
    Column("tenant_id", Text, nullable=False),
    id_column("predicate_id"),
    Column("scope_key", Text, nullable=False, comment="tenant:project, tenant:*, or __global__"),
    Column("project_id", Text, nullable=True, comment="NULL: for every project of the tenant"),
    Column("canonical", Text, nullable=False),
    Column("canonical_norm", NAME, nullable=False),
    Column("cardinality", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("global", Boolean, nullable=False, server_default=text("false")),
    time_column("created_at"),
    time_column("updated_at"),
    PrimaryKeyConstraint("tenant_id", "predicate_id"),
    UniqueConstraint("tenant_id", "scope_key", "canonical_norm", name="graph_predicates_name_key"),
    CheckConstraint("canonical_norm <> ''", name="canonical_norm"),
    CheckConstraint("cardinality IN ('single', 'multi')", name="cardinality"),
    CheckConstraint("status IN ('pending', 'active', 'deprecated')", name="status"),
    CheckConstraint(
        "scope_key = CASE WHEN global THEN '__global__' ELSE (tenant_id || ':' || COALESCE(project_id, '*')) END "
        "AND (project_id IS NULL OR NOT global)",
        name="scope_key",
    ),
    info={"rls": Rule.VOCABULARY, "grants": "SELECT, INSERT"},
)

graph_predicate_aliases = Table(
    "graph_predicate_aliases",
    metadata,
    Column("tenant_id", Text, nullable=False),
    id_column("alias_id"),
    Column("scope_key", Text, nullable=False),
    Column("project_id", Text, nullable=True),
    id_column("predicate_id"),
    Column("alias", Text, nullable=False),
    Column("alias_norm", NAME, nullable=False),
    time_column("created_at"),
    PrimaryKeyConstraint("tenant_id", "alias_id"),
    UniqueConstraint("tenant_id", "scope_key", "alias_norm", name="graph_predicate_aliases_alias_key"),
    ForeignKeyConstraint(
        ["tenant_id", "predicate_id"],
        ["graph_predicates.tenant_id", "graph_predicates.predicate_id"],
        ondelete="CASCADE",
    ),
    CheckConstraint("scope_key = (tenant_id || ':' || COALESCE(project_id, '*'))", name="scope_key"),
    Index("graph_predicate_aliases_predicate_idx", "tenant_id", "predicate_id"),
    info={"rls": Rule.VOCABULARY, "grants": "SELECT, INSERT"},
)

# Predicates of the whole installation; a tenant gets its own copy of a row when it first uses it.
global_predicates = Table(
    "global_predicates",
    metadata,
    id_column("predicate_id"),
    Column("canonical", Text, nullable=False),
    Column("canonical_norm", NAME, nullable=False),
    Column("cardinality", Text, nullable=False),
    Column("status", Text, nullable=False),
    time_column("created_at"),
    time_column("updated_at"),
    PrimaryKeyConstraint("predicate_id"),
    UniqueConstraint("canonical_norm", name="global_predicates_name_key"),
    CheckConstraint("cardinality IN ('single', 'multi')", name="cardinality"),
    CheckConstraint("status IN ('pending', 'active', 'deprecated')", name="status"),
    info={"grants": "SELECT"},
)

global_predicate_aliases = Table(
    "global_predicate_aliases",
    metadata,
    Column("alias_norm", NAME, nullable=False),
    Column("alias", Text, nullable=False),
    id_column("predicate_id"),
    PrimaryKeyConstraint("alias_norm"),
    ForeignKeyConstraint(["predicate_id"], ["global_predicates.predicate_id"], ondelete="CASCADE"),
    info={"grants": "SELECT"},
)
