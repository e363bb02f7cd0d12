"""End users: each row of memory belongs to one, or to all of them."""

from sqlalchemy import text

from alembic import op
from app.db.functions import remove_functions
from app.db.migrations import execute_literal
from app.db.rls import Rule, enable_tenant_rls, replace_tenant_rule

revision = "0014_users"
down_revision = "0013_mention_texts"
branch_labels = None
depends_on = None

# The release before knows no users and would show the rows of all of them to each.
compatibility_level = 2

# Of each table with a user: its rule before, and since.
RULES = {
    **dict.fromkeys(
        (
            "memory_history", "entity_edges", "fact_retractions", "documents", "document_notes", "memory_cards",
            "memory_reviews",
        ),
        (Rule.MEMORY, Rule.USER_MEMORY),
    ),
    **dict.fromkeys(
        ("memory_notes", "graph_facts", "embeddings"),
        (Rule.SHARED_MEMORY, Rule.USER_SHARED_MEMORY),
    ),
    **dict.fromkeys(
        (
            "graph_entities", "graph_entity_aliases", "graph_fact_evidence", "graph_fact_mentions",
            "graph_fact_supersessions", "fact_closings", "fact_confidences", "fact_conflicts", "fact_derivations",
            "note_entity_mentions", "document_entity_mentions",
        ),
        (Rule.NAMES, Rule.USER_NAMES),
    ),
    "recall_traces": (Rule.JOURNAL, Rule.USER_JOURNAL),
    "jobs": (Rule.REACH, Rule.USER_JOBS),
}  # fmt: skip

SCHEMA_FUNCTIONS = {
    "owned_keys": """
-- The terms of a document of a user as the index has them: under a mark of the user, and under one of all users' for
-- searches without a user. What all users share is under the mark of the project. Its calls name the schema, since a
-- restore has no search path.
CREATE OR REPLACE FUNCTION owned_keys(p_tenant text, p_project text, p_user text, p_terms text[])
RETURNS text[]
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF p_user = '' THEN
        RETURN public.lexical_keys(p_tenant, p_project, p_terms);
    END IF;
    RETURN public.lexical_keys(p_tenant, p_project || '/*', p_terms)
        || public.lexical_keys(p_tenant, p_project || '/' || p_user, p_terms);
END
$$;
""",
}
# Words of thread ids stay under the mark of the project: only erasure looks for them, without a user.
INDEXES = """
DROP INDEX memory_notes_terms_idx;
CREATE INDEX memory_notes_terms_idx
    ON memory_notes USING gin (owned_keys(tenant_id, project_id, user_id, tsvector_to_array(terms)))
    WITH (fastupdate = off);
DROP INDEX graph_facts_terms_idx;
CREATE INDEX graph_facts_terms_idx
    ON graph_facts USING gin (owned_keys(tenant_id, project_id, user_id, tsvector_to_array(terms)))
    WITH (fastupdate = off);
DROP INDEX memory_notes_thread_idx;
CREATE INDEX memory_notes_thread_idx ON memory_notes (tenant_id, project_id, thread_id, user_id, "position")
    WHERE thread_id IS NOT NULL;
CREATE INDEX memory_notes_user_idx ON memory_notes (tenant_id, project_id, user_id, created_at, note_id);
CREATE INDEX graph_facts_user_idx ON graph_facts (tenant_id, project_id, user_id, created_at, fact_id);
ALTER TABLE graph_entities DROP CONSTRAINT graph_entities_name_key;
ALTER TABLE graph_entities ADD CONSTRAINT graph_entities_name_key
    UNIQUE (tenant_id, project_id, canonical_norm, user_id);
DROP INDEX graph_entity_aliases_norm_idx;
CREATE INDEX graph_entity_aliases_norm_idx ON graph_entity_aliases (tenant_id, project_id, alias_norm, user_id);
ALTER TABLE graph_entity_aliases DROP CONSTRAINT graph_entity_aliases_alias_key;
ALTER TABLE graph_entity_aliases ADD CONSTRAINT graph_entity_aliases_alias_key
    UNIQUE (tenant_id, entity_id, alias_norm, user_id);
CREATE INDEX graph_entities_user_idx ON graph_entities (tenant_id, project_id, user_id, created_at, entity_id);
CREATE INDEX documents_user_idx ON documents (tenant_id, project_id, user_id, created_at, document_id)
    WHERE user_id <> '';
CREATE INDEX embeddings_user_idx ON embeddings (tenant_id, project_id, user_id, model_id, owner_kind, view);
DROP INDEX entity_edges_in_idx;
CREATE INDEX entity_edges_in_idx
    ON entity_edges (tenant_id, project_id, object_entity_id, scope, confidence, edge_id)
    INCLUDE (subject_entity_id, predicate_id, source_trust, valid_from, valid_until, created_at, closed_at,
        retracted_at, weighed_at, agent_id, garden_id, suppression, user_id);
DROP INDEX entity_edges_out_idx;
CREATE INDEX entity_edges_out_idx
    ON entity_edges (tenant_id, project_id, subject_entity_id, scope, confidence, edge_id)
    INCLUDE (object_entity_id, predicate_id, source_trust, valid_from, valid_until, created_at, closed_at,
        retracted_at, weighed_at, agent_id, garden_id, suppression, user_id);
CREATE INDEX memory_cards_user_idx ON memory_cards (tenant_id, project_id, user_id) WHERE user_id <> '';
CREATE INDEX memory_reviews_user_idx ON memory_reviews (tenant_id, project_id, user_id) WHERE user_id <> '';
CREATE INDEX recall_traces_user_idx ON recall_traces (tenant_id, project_id, user_id) WHERE user_id <> '';
CREATE INDEX jobs_user_idx ON jobs (tenant_id, project_id, user_id) WHERE user_id <> '';
"""


# A record of each erasure of a user, without the user's id.
USER_ERASURES = """
CREATE TABLE user_erasures (
    tenant_id text NOT NULL,
    erasure_id uuid NOT NULL,
    project_id text NOT NULL,
    user_hash bytea NOT NULL,
    key_id text NOT NULL,
    created_at timestamptz NOT NULL,
    erased_at timestamptz,
    signed text,
    signature bytea,
    public_key bytea,
    CONSTRAINT user_erasures_pkey PRIMARY KEY (tenant_id, erasure_id)
);
COMMENT ON COLUMN user_erasures.user_hash IS 'SHA-256 of tenant, project and the user''s id, which is stored nowhere';
COMMENT ON COLUMN user_erasures.signed IS 'the receipt, as the very text that was signed';
CREATE INDEX user_erasures_user_idx ON user_erasures (tenant_id, project_id, user_hash, created_at);
"""


def comment_owner(comment: str) -> None:
    """Say what the key of an owner is made of."""
    for table in ("memory_notes", "graph_facts", "documents"):
        op.execute(f"COMMENT ON COLUMN {table}.owner_key IS '{comment}'")


def upgrade() -> None:
    # Functions of the release before use columns and indexes as they were; migrate installs them anew.
    remove_functions(op.get_bind())
    execute_literal(SCHEMA_FUNCTIONS["owned_keys"])
    for table, (_, rule) in RULES.items():
        op.execute(f"ALTER TABLE {table} ADD COLUMN user_id text DEFAULT '' NOT NULL")
        op.execute(f"COMMENT ON COLUMN {table}.user_id IS 'the end user it belongs to; empty: all users'")
        replace_tenant_rule(execute_literal, table, rule=rule)
    comment_owner("the agent under agent_private, the garden and the user")
    op.execute("ALTER TABLE api_keys ADD COLUMN user_id text")
    op.execute("COMMENT ON COLUMN api_keys.user_id IS 'the end user that the key always acts for'")
    execute_literal(INDEXES)
    execute_literal(USER_ERASURES)
    enable_tenant_rls(execute_literal, "user_erasures", rule=Rule.CUSTODY, grants="SELECT")


BEFORE = """
DROP INDEX entity_edges_in_idx;
CREATE INDEX entity_edges_in_idx
    ON entity_edges (tenant_id, project_id, object_entity_id, scope, confidence, edge_id)
    INCLUDE (subject_entity_id, predicate_id, source_trust, valid_from, valid_until, created_at, closed_at,
        retracted_at, weighed_at, agent_id, garden_id, suppression);
DROP INDEX entity_edges_out_idx;
CREATE INDEX entity_edges_out_idx
    ON entity_edges (tenant_id, project_id, subject_entity_id, scope, confidence, edge_id)
    INCLUDE (object_entity_id, predicate_id, source_trust, valid_from, valid_until, created_at, closed_at,
        retracted_at, weighed_at, agent_id, garden_id, suppression);
DROP INDEX memory_notes_terms_idx;
CREATE INDEX memory_notes_terms_idx
    ON memory_notes USING gin (lexical_keys(tenant_id, project_id, tsvector_to_array(terms)))
    WITH (fastupdate = off);
DROP INDEX graph_facts_terms_idx;
CREATE INDEX graph_facts_terms_idx
    ON graph_facts USING gin (lexical_keys(tenant_id, project_id, tsvector_to_array(terms)))
    WITH (fastupdate = off);
DROP INDEX memory_notes_thread_idx;
CREATE INDEX memory_notes_thread_idx ON memory_notes (tenant_id, project_id, thread_id, "position")
    WHERE thread_id IS NOT NULL;
ALTER TABLE graph_entities DROP CONSTRAINT graph_entities_name_key;
ALTER TABLE graph_entities ADD CONSTRAINT graph_entities_name_key UNIQUE (tenant_id, project_id, canonical_norm);
DROP INDEX graph_entity_aliases_norm_idx;
CREATE INDEX graph_entity_aliases_norm_idx ON graph_entity_aliases (tenant_id, project_id, alias_norm);
ALTER TABLE graph_entity_aliases DROP CONSTRAINT graph_entity_aliases_alias_key;
ALTER TABLE graph_entity_aliases ADD CONSTRAINT graph_entity_aliases_alias_key
    UNIQUE (tenant_id, entity_id, alias_norm);
"""


def downgrade() -> None:
    remove_functions(op.get_bind())
    connection = op.get_bind()
    for table in RULES:
        # To the release before, a user's row would be everybody's.
        if connection.scalar(text(f"SELECT EXISTS (SELECT FROM {table} WHERE user_id <> '')")):
            raise RuntimeError(
                f"Table {table} has rows of end users, which the older release would show to all of them; erase or "
                "export these users before the downgrade."
            )
    execute_literal(BEFORE)
    op.execute("DROP TABLE user_erasures")
    comment_owner("the agent under agent_private, else the garden, else nothing")
    op.execute("ALTER TABLE api_keys DROP COLUMN user_id")
    for table, (rule, _) in RULES.items():
        replace_tenant_rule(execute_literal, table, rule=rule)
        op.execute(f"ALTER TABLE {table} DROP COLUMN user_id")
    op.execute("DROP FUNCTION owned_keys")
