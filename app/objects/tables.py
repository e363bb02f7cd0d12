"""Tables of objects and relationships.

Every version is a row that never changes. The head tables have one row for each object and branch, its current version:
reads, lists and walks use only them, so that history does not slow them down. There is no flag for the head.
"""

from typing import Any

from sqlalchemy import (
    ARRAY,
    Boolean,
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
from sqlalchemy.dialects.postgresql import JSONB, TSVECTOR

from app.db.metadata import metadata
from app.db.rls import Rule

_NAME = Text(collation="C")
_LIVE = "deleted_at IS NULL AND suppression = 0"


def _id(name: str, *, nullable: bool = False, comment: str | None = None) -> Column[Any]:
    return Column(name, Uuid(as_uuid=False), nullable=nullable, comment=comment)


def _moment(name: str, *, nullable: bool = False, comment: str | None = None) -> Column[Any]:
    return Column(name, DateTime(timezone=True), nullable=nullable, comment=comment)


def _place() -> list[Column[Any]]:
    """The identity of a version."""
    return [
        Column("tenant_id", Text, nullable=False),
        _id("branch_id"),
        _id("canonical_id", comment="the id of its first version, carried along"),
        _id("version_id"),
        Column("version", Integer, nullable=False),
        Column("project_id", Text, nullable=True, comment="NULL: of every project of the tenant"),
    ]


def _state() -> list[Column[Any]]:
    """The columns that versions of objects and relationships share."""
    return [
        Column("properties", JSONB, nullable=False),
        Column("evidence", JSONB, nullable=True),
        Column("content_hash", LargeBinary, nullable=False),
        Column("schema_version", Integer, nullable=True, comment="of its type, by which it was checked; NULL: by none"),
        _moment("deleted_at", nullable=True),
        Column("suppression", SmallInteger, nullable=False, server_default=text("0")),
    ]


def _object() -> list[Column[Any]]:
    return [
        Column("type", _NAME, nullable=False),
        Column("subtype", Text, nullable=True),
        Column("key", _NAME, nullable=True),
        Column("title", Text, nullable=True),
        Column("status", Text, nullable=True),
        Column("labels", ARRAY(Text), nullable=False),
        _moment("effective_from", nullable=True),
        _moment("effective_to", nullable=True),
    ]


def _relationship() -> list[Column[Any]]:
    return [
        Column("type", _NAME, nullable=False),
        _id("src_id", comment="canonical, so that it survives new versions"),
        _id("dst_id"),
        Column("weight", Double, nullable=True),
        Column("role_src", Text, nullable=True),
        Column("role_dst", Text, nullable=True),
        _moment("valid_from", nullable=True),
        _moment("valid_to", nullable=True),
    ]


def _log() -> list[Column[Any]]:
    """The columns of version tables only: where a version comes from."""
    return [
        _id("supersedes_id", nullable=True),
        Column("change_summary", JSONB, nullable=True, comment="what changed since the version before"),
        Column("written_by", Text, nullable=False, comment="the agent"),
        _moment("created_at"),
    ]


# No foreign key to the branch: each insert would lock that row until its transaction ends.
graph_objects = Table(
    "graph_objects",
    metadata,
    *_place(),
    *_object(),
    *_state(),
    _moment("created_at", comment="of its first version"),
    _moment("updated_at", comment="of this one"),
    Column("terms", TSVECTOR, nullable=False, server_default=text("''::tsvector")),
    Column("terms_length", Integer, Computed("count_terms(terms)", persisted=True), nullable=True),
    Column("embed_text", Text, nullable=True, comment="what is embedded of it; NULL: it is not to be embedded"),
    PrimaryKeyConstraint("tenant_id", "canonical_id", "branch_id"),
    Index(
        "graph_objects_key_key",
        *("tenant_id", "branch_id", "type", "key"),
        unique=True,
        postgresql_where=text(f"key IS NOT NULL AND {_LIVE}"),
    ),
    Index("graph_objects_list_idx", "tenant_id", "branch_id", "type", "canonical_id"),
    Index(
        "graph_objects_properties_idx",
        "properties",
        postgresql_using="gin",
        postgresql_ops={"properties": "jsonb_path_ops"},
    ),
    Index("graph_objects_labels_idx", "labels", postgresql_using="gin"),
    Index("graph_objects_deleted_idx", "tenant_id", "deleted_at", postgresql_where=text("deleted_at IS NOT NULL")),
    Index(
        "graph_objects_terms_idx",
        text("lexical_keys(tenant_id, COALESCE(project_id, ''::text), tsvector_to_array(terms))"),
        postgresql_using="gin",
        postgresql_with={"fastupdate": "off"},
    ),
    info={"rls": Rule.OBJECTS, "grants": "SELECT, INSERT, UPDATE"},
)

graph_object_versions = Table(
    "graph_object_versions",
    metadata,
    *_place(),
    *_object(),
    *_state(),
    *_log(),
    PrimaryKeyConstraint("tenant_id", "version_id"),
    UniqueConstraint("tenant_id", "canonical_id", "branch_id", "version", name="graph_object_versions_number_key"),
    info={"rls": Rule.OBJECTS, "grants": "SELECT, INSERT"},
)

# The columns of an edge that a walk returns or filters by: in the index, so that the table is not read.
_WALKED = ["type", "valid_from", "valid_to", "project_id", "suppression"]
_ORDER = (text("weight DESC NULLS LAST"), text("canonical_id DESC"))

# The heads of relationships; walks use the two indexes out and in, which contain live rows only.
graph_relationships = Table(
    "graph_relationships",
    metadata,
    *_place(),
    *_relationship(),
    *_state(),
    _moment("created_at"),
    _moment("updated_at"),
    Column("one_src", Boolean, nullable=False, comment="its type allows one such relationship from an object"),
    Column("one_dst", Boolean, nullable=False, comment="and one to an object"),
    _id("deleted_with", nullable=True, comment="the object whose deletion took it along"),
    PrimaryKeyConstraint("tenant_id", "canonical_id", "branch_id"),
    Index(
        "graph_relationships_triple_key",
        *("tenant_id", "branch_id", "src_id", "type", "dst_id"),
        unique=True,
        postgresql_where=text(_LIVE),
    ),
    Index(
        "graph_relationships_one_src_key",
        *("tenant_id", "branch_id", "type", "src_id"),
        unique=True,
        postgresql_where=text(f"one_src AND {_LIVE}"),
    ),
    Index(
        "graph_relationships_one_dst_key",
        *("tenant_id", "branch_id", "type", "dst_id"),
        unique=True,
        postgresql_where=text(f"one_dst AND {_LIVE}"),
    ),
    Index(
        "graph_relationships_out_idx",
        *("tenant_id", "branch_id", "src_id", *_ORDER),
        postgresql_include=["dst_id", *_WALKED],
        postgresql_where=text("deleted_at IS NULL"),
    ),
    Index(
        "graph_relationships_in_idx",
        *("tenant_id", "branch_id", "dst_id", *_ORDER),
        postgresql_include=["src_id", *_WALKED],
        postgresql_where=text("deleted_at IS NULL"),
    ),
    Index("graph_relationships_list_idx", "tenant_id", "branch_id", "type", "canonical_id"),
    # Relationships that were deleted with an object, to be restored with it.
    Index(
        "graph_relationships_gone_src_idx",
        *("tenant_id", "src_id"),
        postgresql_where=text("deleted_with IS NOT NULL"),
    ),
    Index(
        "graph_relationships_gone_dst_idx",
        *("tenant_id", "dst_id"),
        postgresql_where=text("deleted_with IS NOT NULL"),
    ),
    Index(
        "graph_relationships_deleted_idx", "tenant_id", "deleted_at", postgresql_where=text("deleted_at IS NOT NULL")
    ),
    # Deleted relationships of an object, for walks at a past time.
    Index(
        "graph_relationships_past_src_idx",
        *("tenant_id", "branch_id", "src_id"),
        postgresql_where=text("deleted_at IS NOT NULL"),
    ),
    Index(
        "graph_relationships_past_dst_idx",
        *("tenant_id", "branch_id", "dst_id"),
        postgresql_where=text("deleted_at IS NOT NULL"),
    ),
    info={"rls": Rule.OBJECTS, "grants": "SELECT, INSERT, UPDATE"},
)

graph_relationship_versions = Table(
    "graph_relationship_versions",
    metadata,
    *_place(),
    *_relationship(),
    *_state(),
    *_log(),
    PrimaryKeyConstraint("tenant_id", "version_id"),
    UniqueConstraint(
        "tenant_id", "canonical_id", "branch_id", "version", name="graph_relationship_versions_number_key"
    ),
    info={"rls": Rule.OBJECTS, "grants": "SELECT, INSERT"},
)

# Objects that name an entity that is to be hidden or erased, or that are bound to it.
object_entity_mentions = Table(
    "object_entity_mentions",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    _id("canonical_id"),
    _id("entity_id"),
    _moment("created_at"),
    Column("suppression", SmallInteger, nullable=False, server_default=text("0")),
    PrimaryKeyConstraint("tenant_id", "canonical_id", "entity_id"),
    ForeignKeyConstraint(
        ["tenant_id", "entity_id"], ["graph_entities.tenant_id", "graph_entities.entity_id"], ondelete="CASCADE"
    ),
    Index("object_entity_mentions_entity_idx", "tenant_id", "entity_id", "canonical_id"),
    info={"rls": Rule.NAMES, "grants": "SELECT"},
)
