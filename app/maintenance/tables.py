"""Tables of maintenance."""

from sqlalchemy import (
    Boolean,
    Column,
    DateTime,
    Double,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    Uuid,
)

from app.db.metadata import metadata
from app.db.rls import Rule

repairs = Table(
    "repairs",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("repair_id", Uuid(as_uuid=False), nullable=False),
    Column("project_id", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("success", Boolean, nullable=False),
    Column("affected", Integer, nullable=False),
    Column("message", Text, nullable=False),
    Column("requested_by", Text, nullable=False, comment="the id of a key, or maintenance"),
    Column("score_before", Double, nullable=True),
    Column("score_after", Double, nullable=True),
    Column("created_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("tenant_id", "repair_id"),
    Index("repairs_action_idx", "tenant_id", "project_id", "action", "created_at"),
    info={"rls": Rule.PROJECT, "grants": "SELECT, INSERT, DELETE"},
)
