"""Indexes for walks at a past time, which also follow relationships that are deleted by now."""

from alembic import op
from app.db.functions import remove_functions

revision = "0004_past_relationships"
down_revision = "0003_query_types"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for end in ("src", "dst"):
        op.execute(
            f"CREATE INDEX graph_relationships_past_{end}_idx ON graph_relationships (tenant_id, branch_id, {end}_id) "
            "WHERE deleted_at IS NOT NULL"
        )


def downgrade() -> None:
    remove_functions(op.get_bind())
    for end in ("src", "dst"):
        op.execute(f"DROP INDEX graph_relationships_past_{end}_idx")
