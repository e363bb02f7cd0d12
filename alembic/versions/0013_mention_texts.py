"""Mentions of entities in notes have the text as it stood in the note, and a confidence."""

from alembic import op
from app.db.functions import remove_functions

revision = "0013_mention_texts"
down_revision = "0012_shared_rows"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Mentions from before this revision have no text. A constant default rewrites no rows.
    op.execute("""
ALTER TABLE note_entity_mentions
    ADD COLUMN mention text,
    ADD COLUMN confidence double precision DEFAULT 1 NOT NULL,
    ADD CONSTRAINT note_entity_mentions_confidence_check CHECK (confidence >= 0 AND confidence <= 1)""")
    op.execute(
        "COMMENT ON COLUMN note_entity_mentions.mention IS 'the name as the note spells it; NULL: not in its text'"
    )


def downgrade() -> None:
    remove_functions(op.get_bind())
    op.execute("ALTER TABLE note_entity_mentions DROP COLUMN mention, DROP COLUMN confidence")
