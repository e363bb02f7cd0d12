"""Tables of memory cards."""

from sqlalchemy import (
    CheckConstraint,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Index,
    Integer,
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

# The summary of an entity in one scope and garden; rebuilt when its facts change.
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
    user_column(),
    PrimaryKeyConstraint("tenant_id", "card_id"),
    ForeignKeyConstraint(
        ["tenant_id", "entity_id"], ["graph_entities.tenant_id", "graph_entities.entity_id"], ondelete="CASCADE"
    ),
    UniqueConstraint("tenant_id", "project_id", "entity_id", "scope", "owner_key", name="memory_cards_place_key"),
    CheckConstraint("scope IN ('agent_private', 'project_shared', 'org_shared', 'public')", name="scope"),
    Index("memory_cards_user_idx", "tenant_id", "project_id", "user_id", postgresql_where=text("user_id <> ''")),
    info={"rls": Rule.USER_MEMORY, "grants": "SELECT"},
)
