"""Tables of the room recall."""

from pgvector.sqlalchemy import VECTOR
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    Date,
    DateTime,
    Double,
    ForeignKeyConstraint,
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
from sqlalchemy.dialects.postgresql import JSONB

from app.db.metadata import metadata
from app.db.rls import Rule

# What a walk and the policy ask of an edge beside its ends: with it in the index, the table itself is not read.
_WALKED = [
    *("predicate_id", "source_trust", "valid_from", "valid_until", "created_at", "closed_at", "retracted_at"),
    *("weighed_at", "agent_id", "garden_id", "suppression"),
]

# One row for each fact whose object is an entity, written and changed in the fact's transaction; it carries all that
# a walk asks at any two times, so that walking touches no other table.
entity_edges = Table(
    "entity_edges",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("edge_id", Uuid(as_uuid=False), nullable=False, comment="the fact's id"),
    Column("project_id", Text, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("garden_id", Uuid(as_uuid=False), nullable=True),
    Column("owner_key", Text, nullable=False),
    Column("subject_entity_id", Uuid(as_uuid=False), nullable=False),
    Column("predicate_id", Uuid(as_uuid=False), nullable=False),
    Column("object_entity_id", Uuid(as_uuid=False), nullable=False),
    Column("confidence", Double, nullable=False),
    Column("source_trust", Double, nullable=False),
    Column("valid_from", DateTime(timezone=True), nullable=False),
    Column("valid_to", DateTime(timezone=True), nullable=True),
    Column(
        "valid_until",
        DateTime(timezone=True),
        Computed("COALESCE(valid_to, 'infinity'::timestamp with time zone)", persisted=True),
        nullable=True,
    ),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("closed_at", DateTime(timezone=True), nullable=True),
    Column("retracted_at", DateTime(timezone=True), nullable=True),
    Column("suppression", SmallInteger, nullable=False, server_default=text("0")),
    Column("weighed_at", DateTime(timezone=True), nullable=True, comment="when its confidence last changed"),
    Column("decayed_at", DateTime(timezone=True), nullable=True, comment="when it last lost confidence to time"),
    PrimaryKeyConstraint("tenant_id", "edge_id"),
    ForeignKeyConstraint(
        ["tenant_id", "edge_id"], ["graph_facts.tenant_id", "graph_facts.fact_id"], ondelete="CASCADE"
    ),
    Index(
        "entity_edges_out_idx",
        *("tenant_id", "project_id", "subject_entity_id", "scope", "confidence", "edge_id"),
        postgresql_include=["object_entity_id", *_WALKED],
    ),
    Index(
        "entity_edges_in_idx",
        *("tenant_id", "project_id", "object_entity_id", "scope", "confidence", "edge_id"),
        postgresql_include=["subject_entity_id", *_WALKED],
    ),
    info={"rls": Rule.MEMORY, "grants": "SELECT"},
)

# What can be recalled, and embedded, beside each other.
_KINDS = "owner_kind IN ('note', 'fact', 'card', 'object')"
_VIEWS = "view IN ('self', 'context')"

# Which models vectors are made with, of the whole installation: one is active, others are filled beside it or kept.
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

# One row for each unit, view and model; as hidden as what it was made of. Split by tenant, so that the share of each in
# an index is larger. Each model has an index of its own for each view, made when the model is added.
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
    PrimaryKeyConstraint("tenant_id", "model_id", "view", "owner_kind", "owner_id"),
    CheckConstraint(_KINDS, name="owner_kind"),
    CheckConstraint(_VIEWS, name="view"),
    postgresql_partition_by="HASH (tenant_id)",
    info={"rls": Rule.MEMORY, "grants": "SELECT"},
)

# What is to be embedded, written with what makes it necessary; one line for each unit and model.
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

# How many vectors a project has of a model: decides how they are searched. Kept by who writes them, one at a time.
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

# What must not reach a provider: matches are embedded as [REDACTED].
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

# How often something was redacted, by day: told to the audit log once the day is over.
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

# How many documents a project has and how long they are, of what everybody in it may read; refreshed now and then.
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
    PrimaryKeyConstraint("tenant_id", "project_id", "kind"),
    CheckConstraint("kind IN ('note', 'fact', 'object')", name="kind"),
    info={"rls": Rule.PROJECT, "grants": "SELECT"},
)

# Terms that are frequent, and how frequent; of the others the index itself tells.
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

# What is known of an entity in one scope and garden, written up for reading; made anew when its facts change.
memory_cards = Table(
    "memory_cards",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("card_id", Uuid(as_uuid=False), nullable=False),
    Column("project_id", Text, nullable=False),
    Column("entity_id", Uuid(as_uuid=False), nullable=False),
    Column("scope", Text, nullable=False),
    Column("garden_id", Uuid(as_uuid=False), nullable=True),
    Column("agent_id", Text, nullable=False),
    Column("owner_key", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("facts", Integer, nullable=False, comment="how many it is made of"),
    Column("omitted", Integer, nullable=False),
    Column("built_at", DateTime(timezone=True), nullable=False, comment="the time its facts were read at"),
    Column("suppression", SmallInteger, nullable=False, server_default=text("0")),
    PrimaryKeyConstraint("tenant_id", "card_id"),
    ForeignKeyConstraint(
        ["tenant_id", "entity_id"], ["graph_entities.tenant_id", "graph_entities.entity_id"], ondelete="CASCADE"
    ),
    UniqueConstraint("tenant_id", "project_id", "entity_id", "scope", "owner_key", name="memory_cards_place_key"),
    CheckConstraint("scope IN ('agent_private', 'project_shared', 'org_shared', 'public')", name="scope"),
    info={"rls": Rule.MEMORY, "grants": "SELECT"},
)

# What was asked, as whom and when, and what was returned: by id and score, never the content itself.
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
    PrimaryKeyConstraint("tenant_id", "trace_id"),
    Index("recall_traces_age_idx", "tenant_id", "created_at"),
    info={"rls": Rule.JOURNAL, "grants": "SELECT, DELETE"},
)
