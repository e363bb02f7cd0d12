"""Tables of documents."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)

from app.db.metadata import metadata, user_column
from app.db.rls import Rule

_SCOPES = "scope IN ('agent_private', 'project_shared', 'org_shared', 'public')"

documents = Table(
    "documents",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("document_id", Uuid(as_uuid=False), nullable=False),
    Column("project_id", Text, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("garden_id", Uuid(as_uuid=False), nullable=True),
    Column(
        "owner_key",
        Text,
        nullable=False,
        comment="the agent under agent_private, the garden and the user",
    ),
    Column("suppression", SmallInteger, nullable=False, server_default=text("0")),
    Column("source_type", Text, nullable=False),
    Column("source_url", Text, nullable=True),
    Column("title", Text, nullable=True),
    Column("tags", ARRAY(Text), nullable=False),
    Column("author", Text, nullable=True),
    Column("occurred_at", DateTime(timezone=True), nullable=False),
    Column(
        "raw_content",
        LargeBinary,
        nullable=True,
        comment="as it came, until it is done: then its chunks hold what it says",
    ),
    Column("content_type", Text, nullable=True),
    Column("content_bytes", BigInteger, nullable=True),
    Column("content_hash", Text, nullable=True),
    Column("status", Text, nullable=False, server_default=text("'queued'")),
    Column("error", Text, nullable=True),
    Column("chunks_total", Integer, nullable=True),
    Column("chunks_done", Integer, nullable=False, server_default=text("0")),
    Column("notes_created", Integer, nullable=False, server_default=text("0")),
    Column("notes_deduplicated", Integer, nullable=False, server_default=text("0")),
    Column("job_id", Uuid(as_uuid=False), nullable=True),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False),
    Column("completed_at", DateTime(timezone=True), nullable=True),
    Column("deleted_at", DateTime(timezone=True), nullable=True),
    user_column(),
    PrimaryKeyConstraint("tenant_id", "document_id"),
    CheckConstraint(_SCOPES, name="scope"),
    CheckConstraint("source_type IN ('text', 'markdown', 'html', 'pdf', 'url')", name="source_type"),
    CheckConstraint(
        "status IN ('queued', 'extracting', 'chunking', 'embedding', 'indexing', 'done', 'failed')", name="status"
    ),
    Index(
        "documents_user_idx",
        *("tenant_id", "project_id", "user_id", "created_at", "document_id"),
        postgresql_where=text("user_id <> ''"),
    ),
    Index("documents_list_idx", "tenant_id", "project_id", "created_at", "document_id"),
    Index(
        "documents_hash_idx",
        "tenant_id",
        "project_id",
        "content_hash",
        postgresql_where=text("deleted_at IS NULL AND content_hash IS NOT NULL"),
    ),
    info={"rls": Rule.USER_MEMORY, "grants": "SELECT, INSERT, UPDATE"},
)

# Which notes are a document's chunks, in order.
document_notes = Table(
    "document_notes",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("document_id", Uuid(as_uuid=False), nullable=False),
    Column("chunk_index", Integer, nullable=False),
    Column("note_id", Uuid(as_uuid=False), nullable=False),
    Column("project_id", Text, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("garden_id", Uuid(as_uuid=False), nullable=True),
    Column("suppression", SmallInteger, nullable=False, server_default=text("0")),
    Column("owned", Boolean, nullable=False, comment="made for this document, and deleted with it"),
    user_column(),
    PrimaryKeyConstraint("tenant_id", "document_id", "chunk_index"),
    ForeignKeyConstraint(
        ["tenant_id", "document_id"], ["documents.tenant_id", "documents.document_id"], ondelete="CASCADE"
    ),
    ForeignKeyConstraint(
        ["tenant_id", "note_id"], ["memory_notes.tenant_id", "memory_notes.note_id"], ondelete="CASCADE"
    ),
    CheckConstraint(_SCOPES, name="scope"),
    Index("document_notes_note_idx", "tenant_id", "note_id"),
    info={"rls": Rule.USER_MEMORY, "grants": "SELECT, INSERT, UPDATE"},
)

# Which documents mention an entity; found for a tombstone and removed with it.
document_entity_mentions = Table(
    "document_entity_mentions",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("document_id", Uuid(as_uuid=False), nullable=False),
    Column("entity_id", Uuid(as_uuid=False), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("suppression", SmallInteger, nullable=False, server_default=text("0")),
    user_column(),
    PrimaryKeyConstraint("tenant_id", "document_id", "entity_id"),
    ForeignKeyConstraint(
        ["tenant_id", "document_id"], ["documents.tenant_id", "documents.document_id"], ondelete="CASCADE"
    ),
    ForeignKeyConstraint(
        ["tenant_id", "entity_id"], ["graph_entities.tenant_id", "graph_entities.entity_id"], ondelete="CASCADE"
    ),
    Index("document_entity_mentions_entity_idx", "tenant_id", "entity_id", "document_id"),
    info={"rls": Rule.USER_NAMES, "grants": "SELECT"},
)
