"""Tables of the graph: one edge for each fact whose object is an entity."""

from sqlalchemy import (
    Column,
    Computed,
    DateTime,
    Double,
    ForeignKeyConstraint,
    Index,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)

from app.db.metadata import metadata, user_column
from app.db.rls import Rule

# What a traversal and the policy read of an edge; included in the indexes so that the table itself is not read.
_TRAVERSED = [
    *("predicate_id", "source_trust", "valid_from", "valid_until", "created_at", "closed_at", "retracted_at"),
    *("weighed_at", "agent_id", "garden_id", "suppression", "user_id"),
]

# One row for each fact whose object is an entity, written in the fact's transaction. It has all that a traversal at
# any two times reads, so that no other table is needed.
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
    user_column(),
    PrimaryKeyConstraint("tenant_id", "edge_id"),
    ForeignKeyConstraint(
        ["tenant_id", "edge_id"], ["graph_facts.tenant_id", "graph_facts.fact_id"], ondelete="CASCADE"
    ),
    Index(
        "entity_edges_out_idx",
        *("tenant_id", "project_id", "subject_entity_id", "scope", "confidence", "edge_id"),
        postgresql_include=["object_entity_id", *_TRAVERSED],
    ),
    Index(
        "entity_edges_in_idx",
        *("tenant_id", "project_id", "object_entity_id", "scope", "confidence", "edge_id"),
        postgresql_include=["subject_entity_id", *_TRAVERSED],
    ),
    info={"rls": Rule.USER_MEMORY, "grants": "SELECT"},
)
