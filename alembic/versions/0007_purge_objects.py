"""Indexes by which retention finds objects and relationships that were deleted long ago."""

from alembic import op
from app.db.functions import remove_functions

revision = "0007_purge_objects"
down_revision = "0006_deleted_gardens"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for kind in ("objects", "relationships"):
        op.execute(
            f"CREATE INDEX graph_{kind}_deleted_idx ON graph_{kind} (tenant_id, deleted_at) "
            "WHERE deleted_at IS NOT NULL"
        )


def downgrade() -> None:
    remove_functions(op.get_bind())
    for kind in ("objects", "relationships"):
        op.execute(f"DROP INDEX graph_{kind}_deleted_idx")
