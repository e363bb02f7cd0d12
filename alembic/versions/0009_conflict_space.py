"""Leave free space on the pages of conflicts, so that resolving one needs no new index entries."""

from alembic import op
from app.db.functions import remove_functions

revision = "0009_conflict_space"
down_revision = "0008_name_folding"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE fact_conflicts SET (fillfactor = 50)")


def downgrade() -> None:
    remove_functions(op.get_bind())
    op.execute("ALTER TABLE fact_conflicts RESET (fillfactor)")
