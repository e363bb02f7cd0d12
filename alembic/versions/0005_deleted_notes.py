"""Deleting a note: what goes and comes back with it, and the events of the audit log about it."""

from alembic import op
from app.db.functions import remove_functions

revision = "0005_deleted_notes"
down_revision = "0004_past_relationships"
branch_labels = None
depends_on = None

KINDS = ("retracted", "corrected", "merged", "decayed", "resolved")
EVENTS = (
    "fact_write", "fact_read", "key_issue", "key_revoke", "key_rotation", "quarantine_admit", "quarantine_release",
    "quota_breach", "admin_action", "tombstone_issued", "tombstone_revoked", "rtbf_legal_hold_issued",
    "erasure_completed", "object_write",
)  # fmt: skip
NEW_EVENTS = ("note_write", "document_write", "garden_write", "review_decide", "job_control")


def replace_check(table: str, column: str, values: tuple[str, ...]) -> None:
    """Restrict a column to these values, without reading the rows that are there: they have fewer."""
    listed = ", ".join(f"'{value}'" for value in values)
    op.execute(f"ALTER TABLE {table} DROP CONSTRAINT {table}_{column}_check")
    op.execute(f"ALTER TABLE {table} ADD CONSTRAINT {table}_{column}_check CHECK ({column} IN ({listed})) NOT VALID")
    op.execute(f"ALTER TABLE {table} VALIDATE CONSTRAINT {table}_{column}_check")


def upgrade() -> None:
    op.execute("ALTER TABLE memory_notes ADD COLUMN deleted_with uuid")
    op.execute("COMMENT ON COLUMN memory_notes.deleted_with IS 'the source note whose deletion deleted it'")
    op.execute(
        "CREATE INDEX memory_notes_deleted_with_idx ON memory_notes (tenant_id, deleted_with) "
        "WHERE deleted_with IS NOT NULL"
    )
    op.execute("ALTER TABLE fact_retractions ADD COLUMN restored_at timestamptz")
    op.execute("COMMENT ON COLUMN fact_retractions.restored_at IS 'when a note that supports the fact was recovered'")
    replace_check("fact_retractions", "kind", (*KINDS, "note_deleted"))
    replace_check("audit_log", "event_type", (*EVENTS, *NEW_EVENTS))


def downgrade() -> None:
    remove_functions(op.get_bind())
    # Such facts stay retracted, and such events stay in the chain: neither can be told in the older words.
    op.execute("UPDATE fact_retractions SET kind = 'retracted' WHERE kind = 'note_deleted'")
    replace_check("fact_retractions", "kind", KINDS)
    op.execute("ALTER TABLE fact_retractions DROP COLUMN restored_at")
    op.execute("DROP INDEX memory_notes_deleted_with_idx")
    op.execute("ALTER TABLE memory_notes DROP COLUMN deleted_with")
    op.execute("ALTER TABLE audit_log DROP CONSTRAINT audit_log_event_type_check")
    listed = ", ".join(f"'{value}'" for value in EVENTS)
    op.execute(
        f"ALTER TABLE audit_log ADD CONSTRAINT audit_log_event_type_check CHECK (event_type IN ({listed})) NOT VALID"
    )
