"""The table of the job queue."""

from sqlalchemy import (
    CheckConstraint,
    Column,
    DateTime,
    Index,
    Integer,
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

# No foreign key to tenant or project: every write enqueues, and each would lock that one row for its transaction.
# The row-level policy already ensures that tenant_id is that of the scope.
jobs = Table(
    "jobs",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("job_id", Uuid(as_uuid=False), nullable=False),
    Column("project_id", Text, nullable=True, comment="NULL: the job is the whole tenant's"),
    Column("agent_id", Text, nullable=False, server_default=text("''")),
    Column("kind", Text, nullable=False),
    Column("status", Text, nullable=False, server_default=text("'pending'")),
    Column("payload", JSONB, nullable=False),
    Column("priority", SmallInteger, nullable=False, server_default=text("0")),
    Column("dedupe_key", Text, nullable=True),
    Column("available_at", DateTime(timezone=True), nullable=False),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("max_attempts", Integer, nullable=False, server_default=text("5")),
    Column("lease_owner", Text, nullable=True),
    Column("lease_expires_at", DateTime(timezone=True), nullable=True),
    Column("last_error", Text, nullable=True),
    Column("result", JSONB(none_as_null=True), nullable=True, comment="what came of it, without content"),
    Column("created_by", Text, nullable=False, comment="the id of the key whose request made it, or schedule"),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("started_at", DateTime(timezone=True), nullable=True),
    Column("finished_at", DateTime(timezone=True), nullable=True),
    user_column(),
    PrimaryKeyConstraint("tenant_id", "job_id"),
    CheckConstraint(
        "status IN ('pending', 'leased', 'completed', 'failed', 'dead', 'cancelled')",
        name="status",
    ),
    CheckConstraint("kind ~ '^[a-z][a-z0-9_]{0,62}$'", name="kind"),
    CheckConstraint("(status = 'leased') = (lease_owner IS NOT NULL)", name="lease"),
    CheckConstraint("attempts >= 0 AND max_attempts >= 1", name="attempts"),
    Index(
        "jobs_open_key",
        "tenant_id",
        "project_id",
        "kind",
        "dedupe_key",
        unique=True,
        postgresql_nulls_not_distinct=True,
        postgresql_where=text("status IN ('pending', 'leased') AND dedupe_key IS NOT NULL"),
    ),
    Index("jobs_user_idx", "tenant_id", "project_id", "user_id", postgresql_where=text("user_id <> ''")),
    Index("jobs_due_idx", "tenant_id", "kind", "available_at", postgresql_where=text("status = 'pending'")),
    Index(
        "jobs_turn_idx",
        "tenant_id",
        "kind",
        text("priority DESC"),
        "available_at",
        "job_id",
        postgresql_where=text("status = 'pending'"),
    ),
    Index("jobs_leased_idx", "lease_expires_at", postgresql_where=text("status = 'leased'")),
    Index("jobs_dead_idx", "kind", postgresql_where=text("status = 'dead'")),
    Index("jobs_list_idx", "tenant_id", "created_at", "job_id"),
    Index(
        "jobs_finished_idx",
        "tenant_id",
        "finished_at",
        postgresql_where=text("status IN ('completed', 'cancelled')"),
    ),
    Index("jobs_lost_idx", "tenant_id", "finished_at", postgresql_where=text("status IN ('dead', 'failed')")),
    info={"rls": Rule.USER_JOBS, "grants": "SELECT, INSERT, UPDATE, DELETE"},
)
