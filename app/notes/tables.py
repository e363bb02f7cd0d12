"""Tables of notes."""

from sqlalchemy import (
    ARRAY,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    DateTime,
    Double,
    ForeignKeyConstraint,
    Index,
    Integer,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, TSVECTOR

from app.db.metadata import metadata, user_column
from app.db.rls import SHARED_SCOPES, Rule

TYPES = (
    "fact", "preference", "decision", "procedural", "semantic", "constraint", "profile", "plan", "document_chunk",
)  # fmt: skip
_LIST_OF_TYPES = ", ".join(f"'{name}'" for name in TYPES)

# No foreign keys to project or garden: each insert would lock that row for its transaction. The policy restricts
# tenant, project and garden to the caller's scope, and rows of gardens are never deleted.
memory_notes = Table(
    "memory_notes",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("note_id", Uuid(as_uuid=False), nullable=False),
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
    Column("type", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("content_hash", Text, nullable=False),
    Column("tags", ARRAY(Text), nullable=False),
    Column("author", Text, nullable=True),
    Column("occurred_at", DateTime(timezone=True), nullable=False),
    Column("thread_id", Text, nullable=True),
    Column("position", Integer, nullable=True),
    Column("pinned", Boolean, nullable=False),
    Column("extraction_status", Text, nullable=False, server_default=text("'none'")),
    Column("version", Integer, nullable=False, server_default=text("1")),
    Column("suppression", SmallInteger, nullable=False, server_default=text("0")),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False),
    Column("deleted_at", DateTime(timezone=True), nullable=True),
    Column("terms", TSVECTOR, nullable=False, server_default=text("''::tsvector")),
    Column("terms_length", Integer, Computed("count_terms(terms)", persisted=True), nullable=True),
    Column(
        "telling",
        Integer,
        nullable=False,
        server_default=text("0"),
        comment="how many terms it has outside of questions",
    ),
    Column("derived_from", Uuid(as_uuid=False), nullable=True, comment="the note it was extracted from"),
    Column("confidence", Double, nullable=True),
    Column("extraction_model", Text, nullable=True),
    Column("deleted_with", Uuid(as_uuid=False), nullable=True, comment="the source note whose deletion deleted it"),
    user_column(),
    PrimaryKeyConstraint("tenant_id", "note_id"),
    CheckConstraint("scope IN ('agent_private', 'project_shared', 'org_shared', 'public')", name="scope"),
    CheckConstraint(f"type IN ({_LIST_OF_TYPES})", name="type"),
    CheckConstraint("extraction_status IN ('none', 'pending', 'completed', 'failed')", name="extraction_status"),
    CheckConstraint("position IS NULL OR thread_id IS NOT NULL", name="position"),
    CheckConstraint("confidence BETWEEN 0 AND 1", name="confidence"),
    Index(
        "memory_notes_live_key",
        "tenant_id",
        "project_id",
        "scope",
        "owner_key",
        "thread_id",
        "position",
        "content_hash",
        unique=True,
        postgresql_nulls_not_distinct=True,
        postgresql_where=text("deleted_at IS NULL AND suppression = 0"),
    ),
    Index(
        "memory_notes_hash_idx", "tenant_id", "project_id", "content_hash", postgresql_where=text("deleted_at IS NULL")
    ),
    # Each term is prefixed with a key of its tenant, project and user; see owned_keys.
    Index(
        "memory_notes_terms_idx",
        text("owned_keys(tenant_id, project_id, user_id, tsvector_to_array(terms))"),
        postgresql_using="gin",
        # A pending list that one tenant fills in bulk would slow down the searches of all others.
        postgresql_with={"fastupdate": "off"},
    ),
    # The words of thread ids in ASCII, and the threads that are not; see find_threads.
    Index(
        "memory_notes_thread_words_idx",
        text("lexical_keys(tenant_id, project_id, regexp_split_to_array(lower(thread_id), '(?:%20|[^0-9a-z])+'))"),
        postgresql_using="gin",
        postgresql_where=text("thread_id IS NOT NULL"),
    ),
    Index(
        "memory_notes_thread_letters_idx",
        "tenant_id",
        "project_id",
        postgresql_where=text("octet_length(thread_id) <> length(thread_id)"),
    ),
    Index("memory_notes_derived_idx", "tenant_id", "derived_from", postgresql_where=text("derived_from IS NOT NULL")),
    Index(
        "memory_notes_deleted_idx",
        "tenant_id",
        "deleted_at",
        "note_id",
        postgresql_where=text("deleted_at IS NOT NULL"),
    ),
    Index(
        "memory_notes_deleted_with_idx",
        "tenant_id",
        "deleted_with",
        postgresql_where=text("deleted_with IS NOT NULL"),
    ),
    Index("memory_notes_list_idx", "tenant_id", "project_id", "created_at", "note_id"),
    Index(
        "memory_notes_thread_idx",
        "tenant_id",
        "project_id",
        "thread_id",
        "user_id",
        "position",
        postgresql_where=text("thread_id IS NOT NULL"),
    ),
    Index("memory_notes_user_idx", "tenant_id", "project_id", "user_id", "created_at", "note_id"),
    # What projects share with each other, with keys of the tenant; see match_shared_notes.
    Index(
        "memory_notes_shared_terms_idx",
        text("lexical_keys(tenant_id, '', tsvector_to_array(terms))"),
        postgresql_using="gin",
        postgresql_with={"fastupdate": "off"},
        postgresql_where=text(SHARED_SCOPES),
    ),
    info={"rls": Rule.USER_SHARED_MEMORY, "grants": "SELECT, INSERT, UPDATE"},
)

memory_history = Table(
    "memory_history",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("history_id", Uuid(as_uuid=False), nullable=False),
    Column("project_id", Text, nullable=False),
    Column("note_id", Uuid(as_uuid=False), nullable=False),
    Column("agent_id", Text, nullable=False, comment="the note's agent, so that its policy holds here too"),
    Column("scope", Text, nullable=False),
    Column("garden_id", Uuid(as_uuid=False), nullable=True),
    Column("suppression", SmallInteger, nullable=False, server_default=text("0")),
    Column("event", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("changed_by", Text, nullable=False),
    Column("reason", Text, nullable=True),
    Column("old_content", Text, nullable=True),
    Column("new_content", Text, nullable=True),
    Column(
        "proposal", JSONB(none_as_null=True), nullable=True, comment="what the pipeline proposed, and what became of it"
    ),
    Column("before", JSONB(none_as_null=True), nullable=True, comment="the other fields that changed, as they were"),
    Column("created_at", DateTime(timezone=True), nullable=False),
    user_column(),
    PrimaryKeyConstraint("tenant_id", "history_id"),
    ForeignKeyConstraint(
        ["tenant_id", "note_id"], ["memory_notes.tenant_id", "memory_notes.note_id"], ondelete="CASCADE"
    ),
    CheckConstraint("event IN ('created', 'updated', 'deleted', 'recovered', 'merged', 'none', 'split')", name="event"),
    Index("memory_history_note_idx", "tenant_id", "note_id", "history_id"),
    Index("memory_history_changes_idx", "tenant_id", "project_id", postgresql_where=text("event <> 'created'")),
    info={"rls": Rule.USER_MEMORY, "grants": "SELECT, INSERT"},
)

# Which notes mention which entity; a mention is hidden when either of them is.
note_entity_mentions = Table(
    "note_entity_mentions",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("note_id", Uuid(as_uuid=False), nullable=False),
    Column("entity_id", Uuid(as_uuid=False), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("suppression", SmallInteger, nullable=False, server_default=text("0")),
    Column(
        "by_name",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="found in its words for a tombstone, and gone with it",
    ),
    Column("mention", Text, nullable=True, comment="the name as the note spells it; NULL: not in its text"),
    Column("confidence", Double, nullable=False, server_default=text("1")),
    user_column(),
    PrimaryKeyConstraint("tenant_id", "note_id", "entity_id"),
    CheckConstraint("confidence BETWEEN 0 AND 1", name="confidence"),
    ForeignKeyConstraint(
        ["tenant_id", "note_id"], ["memory_notes.tenant_id", "memory_notes.note_id"], ondelete="CASCADE"
    ),
    ForeignKeyConstraint(
        ["tenant_id", "entity_id"], ["graph_entities.tenant_id", "graph_entities.entity_id"], ondelete="CASCADE"
    ),
    Index("note_entity_mentions_entity_idx", "tenant_id", "entity_id", "note_id"),
    info={"rls": Rule.USER_NAMES, "grants": "SELECT"},
)
