"""Tables of tenants, projects, keys and gardens."""

from sqlalchemy import (
    ARRAY,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from app.db.metadata import metadata
from app.db.rls import Rule

SLUG = "~ '^[a-z0-9][a-z0-9_-]{0,62}$'"

tenants = Table(
    "tenants",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("tenant_id"),
    CheckConstraint(f"tenant_id {SLUG}", name="tenant_id"),
    info={"rls": Rule.TENANT, "grants": "SELECT, INSERT, UPDATE"},
)

projects = Table(
    "projects",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("settings", JSONB, nullable=False, server_default=text("'{}'")),
    Column("created_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("tenant_id", "project_id"),
    ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"]),
    CheckConstraint(f"project_id {SLUG}", name="project_id"),
    info={"rls": Rule.REACH, "grants": "SELECT, INSERT, UPDATE"},
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("key_id", Uuid(as_uuid=False), nullable=False),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("project_id", Text, nullable=True, comment="NULL: the key spans all projects of the tenant"),
    Column("scopes", ARRAY(Text), nullable=False),
    Column("rate_limits", JSONB, nullable=False, server_default=text("'{}'")),
    Column("secret_hash", LargeBinary, nullable=False, comment="SHA-256 of the secret; the secret is stored nowhere"),
    Column("previous_hash", LargeBinary, nullable=True, comment="after a rotation with grace"),
    Column("previous_until", DateTime(timezone=True), nullable=True),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=True),
    Column("last_used_at", DateTime(timezone=True), nullable=True),
    Column("rotated_at", DateTime(timezone=True), nullable=True),
    Column("revoked_at", DateTime(timezone=True), nullable=True),
    Column("user_id", Text, nullable=True, comment="the end user that the key always acts for"),
    PrimaryKeyConstraint("tenant_id", "key_id"),
    ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"]),
    ForeignKeyConstraint(["tenant_id", "project_id"], ["projects.tenant_id", "projects.project_id"]),
    CheckConstraint("kind IN ('agent', 'admin')", name="kind"),
    CheckConstraint("octet_length(secret_hash) = 32", name="secret_hash"),
    # Not unique: a table distributed by tenant cannot keep uniqueness across tenants. Ids are UUIDv7.
    Index("api_keys_lookup_idx", "key_id"),
    info={"rls": Rule.REACH, "grants": "SELECT, INSERT, UPDATE"},
)

platform_keys = Table(
    "platform_keys",
    metadata,
    Column("key_id", Uuid(as_uuid=False), nullable=False),
    Column("secret_hash", LargeBinary, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("revoked_at", DateTime(timezone=True), nullable=True),
    PrimaryKeyConstraint("key_id"),
    CheckConstraint("octet_length(secret_hash) = 32", name="secret_hash"),
    info={"grants": ""},
)

gardens = Table(
    "gardens",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("garden_id", Uuid(as_uuid=False), nullable=False),
    Column("slug", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("deleted_at", DateTime(timezone=True), nullable=True),
    PrimaryKeyConstraint("tenant_id", "garden_id"),
    Index(
        "gardens_slug_key",
        *("tenant_id", "project_id", "slug"),
        unique=True,
        postgresql_where=text("deleted_at IS NULL"),
    ),
    # The target of garden_members' foreign key, which makes a member's project that of its garden.
    UniqueConstraint("tenant_id", "project_id", "garden_id", name="gardens_project_key"),
    ForeignKeyConstraint(["tenant_id", "project_id"], ["projects.tenant_id", "projects.project_id"]),
    CheckConstraint("slug ~ '^[a-z0-9][a-z0-9-]{0,62}$'", name="slug"),
    CheckConstraint("scope IN ('agent_private', 'project_shared', 'org_shared', 'public')", name="scope"),
    info={"rls": Rule.PROJECT, "grants": "SELECT, INSERT, UPDATE, DELETE"},
)

garden_members = Table(
    "garden_members",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("garden_id", Uuid(as_uuid=False), nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("added_by", Text, nullable=False),
    Column("added_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("tenant_id", "garden_id", "agent_id"),
    ForeignKeyConstraint(
        ["tenant_id", "project_id", "garden_id"],
        ["gardens.tenant_id", "gardens.project_id", "gardens.garden_id"],
        ondelete="CASCADE",
    ),
    CheckConstraint("role IN ('admin', 'writer', 'reader')", name="role"),
    Index("garden_members_agent_idx", "tenant_id", "project_id", "agent_id"),
    info={"rls": Rule.PROJECT, "grants": "SELECT, INSERT, UPDATE, DELETE"},
)
