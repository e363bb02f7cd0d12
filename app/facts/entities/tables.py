"""Tables of entities and their aliases."""

from sqlalchemy import (
    ARRAY,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Index,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)

from app.db.metadata import metadata, user_column
from app.db.rls import Rule
from app.facts.columns import NAME, id_column, time_column

graph_entities = Table(
    "graph_entities",
    metadata,
    Column("tenant_id", Text, nullable=False),
    id_column("entity_id"),
    Column("project_id", Text, nullable=False),
    Column("canonical", Text, nullable=False),
    Column("canonical_norm", NAME, nullable=False),
    Column("kind", Text, nullable=True),
    Column("merged_into", Uuid(as_uuid=False), nullable=True, comment="never a chain: a merge moves what points here"),
    Column("suppression", SmallInteger, nullable=False, server_default=text("0")),
    time_column("created_at"),
    time_column("updated_at"),
    Column("erased_scopes", ARRAY(Text), nullable=True, comment="where tombstones hide it from everyone"),
    Column("held_scopes", ARRAY(Text), nullable=True, comment="where legal holds hide it"),
    Column(
        "decoy_id",
        Uuid(as_uuid=False),
        nullable=True,
        comment="shown to writers who must not know that it is hidden",
    ),
    Column("object_canonical_id", Uuid(as_uuid=False), nullable=True, comment="the object that stands for it"),
    user_column(),
    PrimaryKeyConstraint("tenant_id", "entity_id"),
    UniqueConstraint("tenant_id", "project_id", "canonical_norm", "user_id", name="graph_entities_name_key"),
    ForeignKeyConstraint(["tenant_id", "merged_into"], ["graph_entities.tenant_id", "graph_entities.entity_id"]),
    CheckConstraint("canonical_norm <> ''", name="canonical_norm"),
    Index("graph_entities_user_idx", "tenant_id", "project_id", "user_id", "created_at", "entity_id"),
    Index(
        "graph_entities_merged_idx",
        "tenant_id",
        "merged_into",
        postgresql_where=text("merged_into IS NOT NULL"),
    ),
    Index(
        "graph_entities_object_idx",
        "tenant_id",
        "object_canonical_id",
        postgresql_where=text("object_canonical_id IS NOT NULL"),
    ),
    info={"rls": Rule.USER_NAMES, "grants": "SELECT"},
)

graph_entity_aliases = Table(
    "graph_entity_aliases",
    metadata,
    Column("tenant_id", Text, nullable=False),
    id_column("alias_id"),
    Column("project_id", Text, nullable=False),
    id_column("entity_id"),
    Column("alias", Text, nullable=False),
    Column("alias_norm", NAME, nullable=False),
    Column("suppression", SmallInteger, nullable=False, server_default=text("0")),
    time_column("created_at"),
    user_column(),
    PrimaryKeyConstraint("tenant_id", "alias_id"),
    UniqueConstraint("tenant_id", "entity_id", "alias_norm", "user_id", name="graph_entity_aliases_alias_key"),
    ForeignKeyConstraint(
        ["tenant_id", "entity_id"], ["graph_entities.tenant_id", "graph_entities.entity_id"], ondelete="CASCADE"
    ),
    Index("graph_entity_aliases_norm_idx", "tenant_id", "project_id", "alias_norm", "user_id"),
    info={"rls": Rule.USER_NAMES, "grants": "SELECT"},
)
