"""Gardens that are deleted while their contents stay."""

from alembic import op
from app.db.functions import remove_functions

revision = "0006_deleted_gardens"
down_revision = "0005_deleted_notes"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE gardens ADD COLUMN deleted_at timestamptz")
    op.execute("ALTER TABLE gardens DROP CONSTRAINT gardens_slug_key")
    op.execute("CREATE UNIQUE INDEX gardens_slug_key ON gardens (tenant_id, project_id, slug) WHERE deleted_at IS NULL")


def downgrade() -> None:
    remove_functions(op.get_bind())
    # A slug that was used again stays with the live garden.
    op.execute("UPDATE gardens SET slug = left(slug, 26) || '-' || garden_id WHERE deleted_at IS NOT NULL")
    op.execute("DROP INDEX gardens_slug_key")
    op.execute("ALTER TABLE gardens ADD CONSTRAINT gardens_slug_key UNIQUE (tenant_id, project_id, slug)")
    op.execute("ALTER TABLE gardens DROP COLUMN deleted_at")
