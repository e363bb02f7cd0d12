"""Let keys read what other projects of their tenant share: policies and indexes of notes, facts and vectors."""

from alembic import op
from app.db.functions import remove_functions
from app.db.rls import Rule, replace_tenant_rule

revision = "0012_shared_rows"
down_revision = "0011_forgetting_speed"
branch_labels = None
depends_on = None

TABLES = ("memory_notes", "graph_facts", "embeddings")
SHARED = "scope IN ('org_shared', 'public')"
INDEXES = {
    "memory_notes_shared_terms_idx": "memory_notes USING gin (lexical_keys(tenant_id, '', tsvector_to_array(terms))) "
    f"WITH (fastupdate = off) WHERE {SHARED}",
    "graph_facts_shared_idx": f"graph_facts (tenant_id, created_at, fact_id) WHERE {SHARED}",
    "graph_facts_shared_subject_idx": f"graph_facts (tenant_id, subject_entity_id) WHERE {SHARED}",
    "graph_facts_shared_terms_idx": "graph_facts USING gin (lexical_keys(tenant_id, '', tsvector_to_array(terms))) "
    f"WITH (fastupdate = off) WHERE {SHARED}",
    "embeddings_shared_idx": f"embeddings (tenant_id, model_id, owner_kind, owner_id) WHERE view = 'self' AND {SHARED}",
}


def upgrade() -> None:
    for table in TABLES:
        replace_tenant_rule(op.execute, table, rule=Rule.SHARED_MEMORY)
    for name, definition in INDEXES.items():
        op.execute(f"CREATE INDEX {name} ON {definition}")


def downgrade() -> None:
    remove_functions(op.get_bind())
    for name in INDEXES:
        op.execute(f"DROP INDEX {name}")
    for table in TABLES:
        replace_tenant_rule(op.execute, table, rule=Rule.MEMORY)
