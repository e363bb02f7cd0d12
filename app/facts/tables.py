"""Tables of facts: the facts themselves, and the log of how each of them changed."""

from typing import Any

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Computed,
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
from sqlalchemy.dialects.postgresql import TSVECTOR

from app.db.metadata import metadata, user_column
from app.db.rls import SHARED_SCOPES, Rule
from app.facts.columns import id_column, time_column

_SCOPES = "scope IN ('agent_private', 'project_shared', 'org_shared', 'public')"
_OPEN = "valid_to IS NULL AND retracted_at IS NULL"
# Hidden facts are left out of the unique indexes until they are restored.
_LIVE = f"{_OPEN} AND suppression = 0"


# Only security definer functions write it: they serialise the writers of a timeline and see hidden rows.
graph_facts = Table(
    "graph_facts",
    metadata,
    Column("tenant_id", Text, nullable=False),
    id_column("fact_id"),
    Column("project_id", Text, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("scope", Text, nullable=False),
    id_column("garden_id", nullable=True),
    Column(
        "owner_key",
        Text,
        nullable=False,
        comment="the agent under agent_private, the garden and the user",
    ),
    id_column("subject_entity_id"),
    Column("predicate", Text, nullable=False, comment="as the writer called it"),
    id_column("predicate_id"),
    id_column("object_entity_id", nullable=True),
    Column("object_value", Text, nullable=True),
    Column("object_hash", LargeBinary, nullable=False, comment="SHA-256 of type and value, or of the entity's id"),
    Column("value_type", Text, nullable=False),
    Column("confidence", Double, nullable=False),
    Column("source", Text, nullable=True),
    Column("source_trust", Double, nullable=False),
    Column("fact_hash", LargeBinary, nullable=False),
    Column("hlc", Text, nullable=False),
    Column("mentions", Integer, nullable=False, server_default=text("1")),
    Column("access_count", Integer, nullable=False, server_default=text("0")),
    time_column("last_accessed_at", nullable=True),
    Column("single_valued", Boolean, nullable=False),
    Column("suppression", SmallInteger, nullable=False, server_default=text("0")),
    Column("origin", Text, nullable=True, comment="the peer it came from"),
    time_column("valid_from"),
    time_column("valid_to", nullable=True),
    Column(
        "valid_until",
        DateTime(timezone=True),
        Computed("COALESCE(valid_to, 'infinity'::timestamp with time zone)", persisted=True),
        nullable=True,
    ),
    time_column("created_at"),
    time_column("updated_at"),
    Column("closed_at", DateTime(timezone=True), nullable=True, comment="when valid_to was last set"),
    time_column("retracted_at", nullable=True),
    Column("weighed_at", DateTime(timezone=True), nullable=True, comment="when its confidence last changed"),
    Column("terms", TSVECTOR, nullable=False, server_default=text("''::tsvector")),
    Column("terms_length", Integer, Computed("count_terms(terms)", persisted=True), nullable=True),
    user_column(),
    PrimaryKeyConstraint("tenant_id", "fact_id"),
    ForeignKeyConstraint(["tenant_id", "subject_entity_id"], ["graph_entities.tenant_id", "graph_entities.entity_id"]),
    ForeignKeyConstraint(["tenant_id", "object_entity_id"], ["graph_entities.tenant_id", "graph_entities.entity_id"]),
    ForeignKeyConstraint(
        ["tenant_id", "predicate_id"], ["graph_predicates.tenant_id", "graph_predicates.predicate_id"]
    ),
    CheckConstraint(_SCOPES, name="scope"),
    CheckConstraint("(object_entity_id IS NULL) <> (object_value IS NULL)", name="object"),
    CheckConstraint("valid_to IS NULL OR valid_to > valid_from", name="valid_to"),
    CheckConstraint("confidence >= 0 AND confidence <= 1", name="confidence"),
    CheckConstraint(
        "value_type IN ('entity', 'string', 'text', 'number', 'boolean', 'datetime', 'ref', 'null')", name="value_type"
    ),
    Index(
        "graph_facts_open_entity_key",
        *("tenant_id", "project_id", "scope", "owner_key", "subject_entity_id", "predicate_id", "object_entity_id"),
        unique=True,
        postgresql_where=text(f"{_LIVE} AND object_entity_id IS NOT NULL"),
    ),
    Index(
        "graph_facts_open_value_key",
        *("tenant_id", "project_id", "scope", "owner_key", "subject_entity_id", "predicate_id", "object_hash"),
        unique=True,
        postgresql_where=text(f"{_LIVE} AND object_value IS NOT NULL"),
    ),
    Index(
        "graph_facts_open_single_key",
        *("tenant_id", "project_id", "scope", "owner_key", "subject_entity_id", "predicate_id"),
        unique=True,
        postgresql_where=text(f"{_LIVE} AND single_valued"),
    ),
    Index(
        "graph_facts_belief_idx",
        *("tenant_id", "project_id", "subject_entity_id", "predicate_id", "object_hash", "valid_from"),
    ),
    Index("graph_facts_timeline_idx", "tenant_id", "project_id", "subject_entity_id", "predicate_id", "valid_from"),
    Index("graph_facts_subject_idx", "tenant_id", "project_id", "subject_entity_id", "valid_until", "valid_from"),
    Index("graph_facts_predicate_idx", "tenant_id", "project_id", "predicate_id", "valid_until", "valid_from"),
    Index(
        "graph_facts_object_idx",
        *("tenant_id", "project_id", "object_entity_id", "valid_until"),
        postgresql_where=text("object_entity_id IS NOT NULL"),
    ),
    # Without the open facts: with them the planner would prefer this index for other queries.
    Index(
        "graph_facts_valid_idx",
        *("tenant_id", "project_id", "valid_until"),
        postgresql_where=text("valid_to IS NOT NULL"),
    ),
    Index("graph_facts_list_idx", "tenant_id", "project_id", "created_at", "fact_id"),
    Index(
        "graph_facts_open_predicate_idx",
        *("tenant_id", "project_id", "predicate_id", "created_at", "fact_id"),
        postgresql_where=text(_OPEN),
    ),
    # For reads at a past time: what was closed or retracted since.
    Index(
        "graph_facts_closed_idx",
        *("tenant_id", "project_id", "closed_at"),
        postgresql_where=text("closed_at IS NOT NULL"),
    ),
    Index(
        "graph_facts_retracted_idx",
        *("tenant_id", "project_id", "retracted_at"),
        postgresql_where=text("retracted_at IS NOT NULL"),
    ),
    # Each term is prefixed with its tenant and project: see lexical_keys.
    Index(
        "graph_facts_terms_idx",
        text("owned_keys(tenant_id, project_id, user_id, tsvector_to_array(terms))"),
        postgresql_using="gin",
        # A pending list filled by one tenant's bulk load would slow down the searches of others.
        postgresql_with={"fastupdate": "off"},
    ),
    # Only the beginning of a value is indexed by its terms.
    Index(
        "graph_facts_long_idx",
        *("tenant_id", "project_id"),
        postgresql_where=text("octet_length(object_value) > 20000"),
    ),
    Index("graph_facts_hash_idx", "tenant_id", "fact_hash"),
    Index(
        "graph_facts_source_idx",
        *("tenant_id", "project_id", "source", "created_at"),
        postgresql_where=text("source IS NOT NULL"),
    ),
    Index("graph_facts_user_idx", "tenant_id", "project_id", "user_id", "created_at", "fact_id"),
    Index("graph_facts_open_idx", "tenant_id", "project_id", "created_at", "fact_id", postgresql_where=text(_OPEN)),
    # What projects share with each other: listed, by subject, and by terms with keys of the tenant.
    Index("graph_facts_shared_idx", "tenant_id", "created_at", "fact_id", postgresql_where=text(SHARED_SCOPES)),
    Index("graph_facts_shared_subject_idx", "tenant_id", "subject_entity_id", postgresql_where=text(SHARED_SCOPES)),
    Index(
        "graph_facts_shared_terms_idx",
        text("lexical_keys(tenant_id, '', tsvector_to_array(terms))"),
        postgresql_using="gin",
        postgresql_with={"fastupdate": "off"},
        postgresql_where=text(SHARED_SCOPES),
    ),
    info={"rls": Rule.USER_SHARED_MEMORY, "grants": "SELECT"},
)


def _log(name: str, *columns: Any) -> Table:
    """A table that only grows, of ids and times: as hidden as the facts it names."""
    return Table(
        name,
        metadata,
        Column("tenant_id", Text, nullable=False),
        Column("project_id", Text, nullable=False),
        *columns,
        Column("suppression", SmallInteger, nullable=False, server_default=text("0")),
        user_column(),
        info={"rls": Rule.USER_NAMES, "grants": "SELECT"},
    )


def _fact_key(*columns: str, cascade: bool = True) -> list[ForeignKeyConstraint]:
    return [
        ForeignKeyConstraint(
            ["tenant_id", column],
            ["graph_facts.tenant_id", "graph_facts.fact_id"],
            ondelete="CASCADE" if cascade else None,
        )
        for column in columns
    ]


def _note_key(column: str) -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["tenant_id", column], ["memory_notes.tenant_id", "memory_notes.note_id"], ondelete="CASCADE"
    )


graph_fact_evidence = _log(
    "graph_fact_evidence",
    id_column("evidence_id"),
    id_column("fact_id"),
    id_column("note_id"),
    time_column("created_at"),
    PrimaryKeyConstraint("tenant_id", "evidence_id"),
    UniqueConstraint("tenant_id", "fact_id", "note_id", name="graph_fact_evidence_note_key"),
    *_fact_key("fact_id"),
    _note_key("note_id"),
    Index("graph_fact_evidence_note_idx", "tenant_id", "note_id"),
)

graph_fact_supersessions = _log(
    "graph_fact_supersessions",
    id_column("supersession_id"),
    id_column("from_fact_id"),
    id_column("to_fact_id"),
    id_column("note_id", nullable=True),
    time_column("effective_at"),
    time_column("created_at"),
    PrimaryKeyConstraint("tenant_id", "supersession_id"),
    *_fact_key("from_fact_id", "to_fact_id"),
    _note_key("note_id"),
    Index(
        "graph_fact_supersessions_link_key",
        *("tenant_id", "from_fact_id", "to_fact_id", "note_id"),
        unique=True,
        postgresql_nulls_not_distinct=True,
    ),
    Index("graph_fact_supersessions_to_idx", "tenant_id", "to_fact_id"),
    Index(
        "graph_fact_supersessions_note_idx",
        *("tenant_id", "note_id"),
        postgresql_where=text("note_id IS NOT NULL"),
    ),
)

fact_closings = _log(
    "fact_closings",
    id_column("closing_id"),
    id_column("fact_id"),
    time_column("recorded_at"),
    time_column("previous_valid_to", nullable=True),
    PrimaryKeyConstraint("tenant_id", "closing_id"),
    *_fact_key("fact_id"),
    Index("fact_closings_fact_idx", "tenant_id", "fact_id", "recorded_at"),
)

fact_conflicts = _log(
    "fact_conflicts",
    id_column("conflict_id"),
    Column("fact_a", Uuid(as_uuid=False), nullable=False, comment="the one that was there"),
    Column("fact_b", Uuid(as_uuid=False), nullable=False, comment="the one that came to it"),
    Column("status", Text, nullable=False, server_default=text("'open'")),
    Column("resolved_by", Text, nullable=True),
    Column("resolution_note", Text, nullable=True),
    time_column("detected_at"),
    time_column("resolved_at", nullable=True),
    id_column("winner", nullable=True),
    PrimaryKeyConstraint("tenant_id", "conflict_id"),
    UniqueConstraint("tenant_id", "fact_a", "fact_b", name="fact_conflicts_pair_key"),
    *_fact_key("fact_a", "fact_b"),
    CheckConstraint("status IN ('open', 'resolved')", name="status"),
    Index("fact_conflicts_other_idx", "tenant_id", "fact_b"),
    Index("fact_conflicts_list_idx", "tenant_id", "project_id", "detected_at", "conflict_id"),
)

fact_confidences = _log(
    "fact_confidences",
    id_column("change_id"),
    id_column("fact_id"),
    time_column("recorded_at"),
    Column("previous_confidence", Double, nullable=False),
    Column("previous_mentions", Integer, nullable=False),
    PrimaryKeyConstraint("tenant_id", "change_id"),
    *_fact_key("fact_id"),
    Index("fact_confidences_fact_idx", "tenant_id", "fact_id", "recorded_at"),
)

# Facts that name an entity in their value; rows exist only while a tombstone covers the entity.
graph_fact_mentions = _log(
    "graph_fact_mentions",
    id_column("fact_id"),
    id_column("entity_id"),
    time_column("created_at"),
    PrimaryKeyConstraint("tenant_id", "fact_id", "entity_id"),
    *_fact_key("fact_id"),
    ForeignKeyConstraint(
        ["tenant_id", "entity_id"], ["graph_entities.tenant_id", "graph_entities.entity_id"], ondelete="CASCADE"
    ),
    Index("graph_fact_mentions_entity_idx", "tenant_id", "entity_id", "fact_id"),
)

fact_retractions = Table(
    "fact_retractions",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("retraction_id", Uuid(as_uuid=False), nullable=False),
    Column("fact_id", Uuid(as_uuid=False), nullable=False),
    Column("agent_id", Text, nullable=False, comment="the fact's agent, so that its policy holds here too"),
    Column("scope", Text, nullable=False),
    Column("garden_id", Uuid(as_uuid=False), nullable=True),
    Column("suppression", SmallInteger, nullable=False, server_default=text("0")),
    Column("kind", Text, nullable=False),
    Column("reason", Text, nullable=True),
    Column("retracted_by", Text, nullable=False),
    Column("confidence_before", Double, nullable=False),
    Column("retracted_at", DateTime(timezone=True), nullable=False),
    Column(
        "restored_at",
        DateTime(timezone=True),
        nullable=True,
        comment="when a note that supports the fact was recovered",
    ),
    user_column(),
    PrimaryKeyConstraint("tenant_id", "retraction_id"),
    ForeignKeyConstraint(
        ["tenant_id", "fact_id"], ["graph_facts.tenant_id", "graph_facts.fact_id"], ondelete="CASCADE"
    ),
    CheckConstraint("kind IN ('retracted', 'corrected', 'merged', 'decayed', 'resolved', 'note_deleted')", name="kind"),
    Index("fact_retractions_fact_idx", "tenant_id", "fact_id"),
    info={"rls": Rule.USER_MEMORY, "grants": "SELECT"},
)

fact_derivations = Table(
    "fact_derivations",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("fact_id", Uuid(as_uuid=False), nullable=False),
    Column("source_hash", LargeBinary, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("kind", Text, nullable=False, server_default=text("'derived'")),
    Column("suppression", SmallInteger, nullable=False, server_default=text("0")),
    user_column(),
    PrimaryKeyConstraint("tenant_id", "fact_id", "source_hash", "kind"),
    ForeignKeyConstraint(
        ["tenant_id", "fact_id"], ["graph_facts.tenant_id", "graph_facts.fact_id"], ondelete="CASCADE"
    ),
    CheckConstraint("kind IN ('derived', 'resolves')", name="kind"),
    Index("fact_derivations_source_idx", "tenant_id", "source_hash"),
    info={"rls": Rule.USER_NAMES, "grants": "SELECT"},
)
