"""Tables of embeddings: models, vectors, the queue of units to embed, redactions."""

from pgvector.sqlalchemy import VECTOR
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)

from app.db.metadata import metadata, user_column
from app.db.rls import SHARED_SCOPES, Rule

# The kinds of units that are embedded.
_KINDS = "owner_kind IN ('note', 'fact', 'card', 'object')"
_VIEWS = "view IN ('self', 'context')"

# The models of the installation: one is active, others are being filled or kept.
embedding_models = Table(
    "embedding_models",
    metadata,
    Column("model_id", SmallInteger, nullable=False),
    Column("provider", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("version", Integer, nullable=False, server_default=text("1")),
    Column("dimensions", Integer, nullable=False),
    Column("active", Boolean, nullable=False, server_default=text("false")),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("activated_at", DateTime(timezone=True), nullable=True),
    PrimaryKeyConstraint("model_id"),
    UniqueConstraint("provider", "model", "version", name="embedding_models_name_key"),
    CheckConstraint("dimensions >= 64 AND dimensions <= 2000", name="dimensions"),
    Index("embedding_models_active_key", "active", unique=True, postgresql_where=text("active")),
    info={"grants": "SELECT"},
)

# One row for each unit, view and model, as visible as its unit. Partitioned by tenant, so that the share of each tenant
# in an index is larger. Indexes are created for each model when it is added.
embeddings = Table(
    "embeddings",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("owner_kind", Text, nullable=False),
    Column("owner_id", Uuid(as_uuid=False), nullable=False),
    Column("view", Text, nullable=False),
    Column("model_id", SmallInteger, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("garden_id", Uuid(as_uuid=False), nullable=True),
    Column("suppression", SmallInteger, nullable=False, server_default=text("0")),
    Column("text_hash", LargeBinary, nullable=False, comment="of the text it was made of"),
    Column("embedded_at", DateTime(timezone=True), nullable=False),
    Column("vector", VECTOR(), nullable=False),
    user_column(),
    PrimaryKeyConstraint("tenant_id", "model_id", "view", "owner_kind", "owner_id"),
    CheckConstraint(_KINDS, name="owner_kind"),
    CheckConstraint(_VIEWS, name="view"),
    Index("embeddings_user_idx", "tenant_id", "project_id", "user_id", "model_id", "owner_kind", "view"),
    Index(
        "embeddings_shared_idx",
        *("tenant_id", "model_id", "owner_kind", "owner_id"),
        postgresql_where=text(f"view = 'self' AND {SHARED_SCOPES}"),
    ),
    postgresql_partition_by="HASH (tenant_id)",
    info={"rls": Rule.USER_SHARED_MEMORY, "grants": "SELECT"},
)

# Units to embed, queued in the transaction that changes them; one row for each unit and model.
embedding_queue = Table(
    "embedding_queue",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("owner_kind", Text, nullable=False),
    Column("owner_id", Uuid(as_uuid=False), nullable=False),
    Column("model_id", SmallInteger, nullable=False),
    Column("queued_at", DateTime(timezone=True), nullable=False),
    Column("available_at", DateTime(timezone=True), nullable=False),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("last_error", Text, nullable=True),
    PrimaryKeyConstraint("tenant_id", "project_id", "model_id", "owner_kind", "owner_id"),
    CheckConstraint(_KINDS, name="owner_kind"),
    Index("embedding_queue_due_idx", "tenant_id", "project_id", "model_id", "available_at", "owner_id"),
    info={"rls": Rule.PROJECT, "grants": "SELECT, INSERT, UPDATE, DELETE"},
)

# How many vectors a project has of a model, which decides how they are searched; updated by every writer of vectors.
embedding_counts = Table(
    "embedding_counts",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("model_id", SmallInteger, nullable=False),
    Column("view", Text, nullable=False),
    Column("vectors", BigInteger, nullable=False),
    Column("notes", BigInteger, nullable=False, server_default=text("0"), comment="those of them that are of notes"),
    Column("facts", BigInteger, nullable=False, server_default=text("0"), comment="and of facts"),
    Column("counted_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("tenant_id", "project_id", "model_id", "view"),
    CheckConstraint(_VIEWS, name="view"),
    info={"rls": Rule.PROJECT, "grants": "SELECT"},
)

# Patterns whose matches are replaced by [REDACTED] before a text is sent to a provider.
embedding_redactions = Table(
    "embedding_redactions",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("pattern_id", Uuid(as_uuid=False), nullable=False),
    Column("pattern", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("tenant_id", "pattern_id"),
    UniqueConstraint("tenant_id", "pattern", name="embedding_redactions_pattern_key"),
    info={"rls": Rule.TENANT, "grants": "SELECT, INSERT, DELETE"},
)

# Redactions by day; written to the audit log when the day is over.
redaction_counts = Table(
    "redaction_counts",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("day", Date, nullable=False),
    Column("redactions", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant_id", "project_id", "day"),
    info={"rls": Rule.PROJECT, "grants": "SELECT, INSERT, UPDATE, DELETE"},
)
