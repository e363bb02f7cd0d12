"""Names are one in every spelling that search finds: indexes, terms, and the stored normal forms of names."""

import re
import unicodedata

from sqlalchemy import text

from alembic import op
from app.db.functions import remove_functions

revision = "0008_name_folding"
down_revision = "0007_purge_objects"
branch_labels = None
depends_on = None

# As in app/facts/names.py when this revision was made.
IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
URI_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?=\S)")
# An entity whose new normal form another one has keeps its old one: it is reached by its id, and diagnostics list it.
RENAME_ENTITY = """
UPDATE graph_entities e SET canonical_norm = :new
WHERE e.tenant_id = :tenant AND e.entity_id = :id AND NOT EXISTS (
    SELECT FROM graph_entities o
    WHERE o.tenant_id = e.tenant_id AND o.project_id = e.project_id AND o.canonical_norm = :new)"""
RENAME_ALIAS = """
UPDATE graph_entity_aliases a SET alias_norm = :new
WHERE a.tenant_id = :tenant AND a.alias_id = :id AND NOT EXISTS (
    SELECT FROM graph_entity_aliases o
    WHERE o.tenant_id = a.tenant_id AND o.entity_id = a.entity_id AND o.alias_norm = :new)"""


def upgrade() -> None:
    # What a note said when it was created is in the note itself, or in the change that replaced it.
    op.execute("""
CREATE INDEX memory_history_changes_idx ON memory_history (tenant_id, project_id) WHERE event <> 'created'""")
    # Threads by the words of their ids; the few that are not in ASCII are read.
    op.execute("""
CREATE INDEX memory_notes_thread_words_idx
    ON memory_notes USING gin (
        lexical_keys(tenant_id, project_id, regexp_split_to_array(lower(thread_id), '(?:%20|[^0-9a-z])+')))
    WHERE thread_id IS NOT NULL""")
    op.execute("""
CREATE INDEX memory_notes_thread_letters_idx ON memory_notes (tenant_id, project_id)
    WHERE octet_length(thread_id) <> length(thread_id)""")
    # Terms are without invisible characters now, and have the words of addresses and paths.
    op.execute("""
INSERT INTO jobs (tenant_id, job_id, project_id, kind, payload, dedupe_key, created_by, available_at, created_at)
SELECT p.tenant_id, gen_random_uuid(), p.project_id, 'reindex', '{}', 'reindex', 'schedule', now(), now()
FROM projects p
ON CONFLICT DO NOTHING""")
    normalize_names("graph_entities", "entity_id", "canonical_norm", RENAME_ENTITY)
    normalize_names("graph_entity_aliases", "alias_id", "alias_norm", RENAME_ALIAS)


def normalize_names(table: str, key: str, column: str, rename: str) -> None:
    """Store the new normal form of names, those of older rows first; names in ASCII have the same one."""
    connection = op.get_bind()
    found = connection.execute(
        text(
            f"SELECT tenant_id, {key} AS id, {column} AS norm FROM {table} "
            f"WHERE octet_length({column}) <> length({column}) ORDER BY created_at, {key}"
        )
    ).all()
    for row in found:
        new = normal_form(row.norm)
        if new and new != row.norm:
            connection.execute(text(rename), {"tenant": row.tenant_id, "id": row.id, "new": new})


def normal_form(name: str) -> str:
    """Return a name as app/facts/names.py normalised it when this revision was made."""
    for _ in range(2):
        name = unicodedata.normalize("NFKC", IGNORABLE.sub("", name).lower())
    name = " ".join(name.split())
    return name.replace(" ", "-") if URI_SCHEME.match(name) else name


def downgrade() -> None:
    remove_functions(op.get_bind())
    for name in ("memory_history_changes_idx", "memory_notes_thread_words_idx", "memory_notes_thread_letters_idx"):
        op.execute(f"DROP INDEX {name}")
