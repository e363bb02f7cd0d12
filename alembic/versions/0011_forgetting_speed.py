"""Index long values of facts, and tell a count of terms which units were hidden meanwhile."""

from alembic import op
from app.db.functions import remove_functions

revision = "0011_forgetting_speed"
down_revision = "0010_signing_keys"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE INDEX graph_facts_long_idx ON graph_facts (tenant_id, project_id) "
        "WHERE octet_length(object_value) > 20000"
    )
    op.execute("ALTER TABLE lexical_statistics ADD COLUMN invalidations bigint NOT NULL DEFAULT 0")
    op.execute(
        "COMMENT ON COLUMN lexical_statistics.invalidations IS 'how often units were hidden, restored or erased: a "
        "count that began before one is not stored'"
    )


def downgrade() -> None:
    remove_functions(op.get_bind())
    op.execute("ALTER TABLE lexical_statistics DROP COLUMN invalidations")
    op.execute("DROP INDEX graph_facts_long_idx")
