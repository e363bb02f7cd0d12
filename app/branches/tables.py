"""Tables of branches."""

from sqlalchemy import Column, DateTime, ForeignKeyConstraint, Index, PrimaryKeyConstraint, Table, Text, Uuid

from app.db.metadata import metadata
from app.db.rls import Rule

branches = Table(
    "branches",
    metadata,
    Column("tenant_id", Text, nullable=False),
    Column("branch_id", Uuid(as_uuid=False), nullable=False),
    Column("project_id", Text, nullable=True, comment="NULL: of objects that belong to no project"),
    Column("name", Text, nullable=False),
    Column("parent_branch_id", Uuid(as_uuid=False), nullable=True),
    Column("created_from_branch_head_at", DateTime(timezone=True), nullable=True),
    Column("created_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("tenant_id", "branch_id"),
    ForeignKeyConstraint(["tenant_id", "parent_branch_id"], ["branches.tenant_id", "branches.branch_id"]),
    Index("branches_name_key", "tenant_id", "project_id", "name", unique=True, postgresql_nulls_not_distinct=True),
    info={"rls": Rule.VOCABULARY, "grants": "SELECT, INSERT"},
)
