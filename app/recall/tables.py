"""Tables of recall: term statistics and traces."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Index,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from app.db.metadata import metadata, user_column
from app.db.rls import Rule

# Number and total length of the units of a project that everybody in it may read; refreshed by a job.
lexical_statistics = Table(
    "lexical_statistics",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("documents", BigInteger, nullable=False),
    Column("total_length", BigInteger, nullable=False),
    Column("added", BigInteger, nullable=False, comment="since they were counted"),
    Column("counted_at", DateTime(timezone=True), nullable=False),
    Column(
        "invalidations",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="how often units were hidden, restored or erased: a count that began before one is not stored",
    ),
    PrimaryKeyConstraint("tenant_id", "project_id", "kind"),
    CheckConstraint("kind IN ('note', 'fact', 'object')", name="kind"),
    info={"rls": Rule.PROJECT, "grants": "SELECT"},
)

# How many units contain each frequent term; rare terms are counted in the index when needed.
lexical_frequencies = Table(
    "lexical_frequencies",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("term", Text(collation="C"), nullable=False),
    Column("documents", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant_id", "project_id", "kind", "term"),
    CheckConstraint("kind IN ('note', 'fact', 'object')", name="kind"),
    info={"rls": Rule.PROJECT, "grants": "SELECT"},
)

# Requests and the ids and scores of their results, never the contents.
recall_traces = Table(
    "recall_traces",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("trace_id", Uuid(as_uuid=False), nullable=False),
    Column("project_id", Text, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("request", JSONB, nullable=False),
    Column("context", JSONB, nullable=False, comment="gardens, reach, clock, channels, model, versions"),
    Column("results", JSONB, nullable=False),
    Column("valid_at", DateTime(timezone=True), nullable=False),
    Column("as_of", DateTime(timezone=True), nullable=False),
    Column("suppression", SmallInteger, nullable=False, server_default=text("0")),
    Column("created_at", DateTime(timezone=True), nullable=False),
    user_column(),
    PrimaryKeyConstraint("tenant_id", "trace_id"),
    Index("recall_traces_user_idx", "tenant_id", "project_id", "user_id", postgresql_where=text("user_id <> ''")),
    Index("recall_traces_age_idx", "tenant_id", "created_at"),
    info={"rls": Rule.USER_JOURNAL, "grants": "SELECT, DELETE"},
)
