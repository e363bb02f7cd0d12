"""The pipeline: derived notes, proposals, reviews, calls of models and their cost, documents, repairs."""

from alembic import op
from app.db.migrations import execute_literal
from app.db.rls import APP_ROLE, Rule, enable_tenant_rls

revision = "0007"
down_revision = "0005"
branch_labels = None
depends_on = None

TABLES = """
ALTER TABLE memory_notes
    ADD COLUMN derived_from UUID,
    ADD COLUMN confidence DOUBLE PRECISION,
    ADD COLUMN extraction_model TEXT,
    ADD CONSTRAINT memory_notes_confidence_check CHECK (confidence BETWEEN 0 AND 1);
COMMENT ON COLUMN memory_notes.derived_from IS 'the note it was extracted from';
CREATE INDEX memory_notes_derived_idx ON memory_notes (tenant_id, derived_from) WHERE derived_from IS NOT NULL;
ALTER TABLE memory_history ADD COLUMN proposal JSONB;
COMMENT ON COLUMN memory_history.proposal IS 'what the pipeline proposed, and what became of it';
ALTER TABLE jobs ADD COLUMN result JSONB;
COMMENT ON COLUMN jobs.result IS 'what came of it, without content';
CREATE TABLE memory_reviews (
    tenant_id TEXT NOT NULL,
    review_id UUID NOT NULL,
    project_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    garden_id UUID,
    suppression SMALLINT DEFAULT 0 NOT NULL,
    note_id UUID NOT NULL,
    target_note_id UUID NOT NULL,
    target_version INTEGER NOT NULL,
    action TEXT NOT NULL,
    content TEXT NOT NULL,
    content_type TEXT NOT NULL,
    confidence DOUBLE PRECISION NOT NULL,
    reason TEXT NOT NULL,
    extraction_model TEXT NOT NULL,
    status TEXT DEFAULT 'pending' NOT NULL,
    decided_by TEXT,
    decision_reason TEXT,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    decided_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT memory_reviews_pkey PRIMARY KEY (tenant_id, review_id),
    CONSTRAINT memory_reviews_tenant_id_note_id_fkey FOREIGN KEY(tenant_id, note_id)
        REFERENCES memory_notes (tenant_id, note_id) ON DELETE CASCADE,
    CONSTRAINT memory_reviews_tenant_id_target_note_id_fkey FOREIGN KEY(tenant_id, target_note_id)
        REFERENCES memory_notes (tenant_id, note_id) ON DELETE CASCADE,
    CONSTRAINT memory_reviews_scope_check CHECK (scope IN ('agent_private', 'project_shared', 'org_shared', 'public')),
    CONSTRAINT memory_reviews_action_check CHECK (action IN ('update', 'delete')),
    CONSTRAINT memory_reviews_status_check CHECK (status IN ('pending', 'approved', 'rejected'))
);
COMMENT ON COLUMN memory_reviews.note_id IS 'the note the proposal comes from';
CREATE INDEX memory_reviews_list_idx ON memory_reviews (tenant_id, project_id, created_at, review_id);
CREATE INDEX memory_reviews_note_idx ON memory_reviews (tenant_id, note_id);
CREATE INDEX memory_reviews_target_idx ON memory_reviews (tenant_id, target_note_id);
CREATE TABLE llm_calls (
    tenant_id TEXT NOT NULL,
    call_id UUID NOT NULL,
    project_id TEXT NOT NULL,
    job_id UUID,
    purpose TEXT NOT NULL,
    model TEXT NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    succeeded BOOLEAN NOT NULL,
    duration_ms INTEGER NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT llm_calls_pkey PRIMARY KEY (tenant_id, call_id)
);
CREATE INDEX llm_calls_time_idx ON llm_calls (tenant_id, project_id, created_at);
CREATE TABLE llm_usage (
    tenant_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    day DATE NOT NULL,
    model TEXT NOT NULL,
    calls BIGINT NOT NULL,
    failures BIGINT NOT NULL,
    input_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    CONSTRAINT llm_usage_pkey PRIMARY KEY (tenant_id, project_id, day, model)
);
CREATE TABLE documents (
    tenant_id TEXT NOT NULL,
    document_id UUID NOT NULL,
    project_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    garden_id UUID,
    owner_key TEXT NOT NULL,
    suppression SMALLINT DEFAULT 0 NOT NULL,
    source_type TEXT NOT NULL,
    source_url TEXT,
    title TEXT,
    tags TEXT[] NOT NULL,
    author TEXT,
    occurred_at TIMESTAMP WITH TIME ZONE NOT NULL,
    raw_content BYTEA,
    content_type TEXT,
    content_bytes BIGINT,
    content_hash TEXT,
    status TEXT DEFAULT 'queued' NOT NULL,
    error TEXT,
    chunks_total INTEGER,
    chunks_done INTEGER DEFAULT 0 NOT NULL,
    notes_created INTEGER DEFAULT 0 NOT NULL,
    notes_deduplicated INTEGER DEFAULT 0 NOT NULL,
    job_id UUID,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    completed_at TIMESTAMP WITH TIME ZONE,
    deleted_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT documents_pkey PRIMARY KEY (tenant_id, document_id),
    CONSTRAINT documents_scope_check CHECK (scope IN ('agent_private', 'project_shared', 'org_shared', 'public')),
    CONSTRAINT documents_source_type_check CHECK (source_type IN ('text', 'markdown', 'html', 'pdf', 'url')),
    CONSTRAINT documents_status_check CHECK (
        status IN ('queued', 'extracting', 'chunking', 'embedding', 'indexing', 'done', 'failed'))
);
COMMENT ON COLUMN documents.owner_key IS 'the agent under agent_private, else the garden, else nothing';
COMMENT ON COLUMN documents.raw_content IS 'as it came, until it is done: then its chunks hold what it says';
CREATE INDEX documents_hash_idx ON documents (tenant_id, project_id, content_hash)
    WHERE deleted_at IS NULL AND content_hash IS NOT NULL;
CREATE INDEX documents_list_idx ON documents (tenant_id, project_id, created_at, document_id);
CREATE TABLE document_notes (
    tenant_id TEXT NOT NULL,
    document_id UUID NOT NULL,
    chunk_index INTEGER NOT NULL,
    note_id UUID NOT NULL,
    project_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    garden_id UUID,
    suppression SMALLINT DEFAULT 0 NOT NULL,
    owned BOOLEAN NOT NULL,
    CONSTRAINT document_notes_pkey PRIMARY KEY (tenant_id, document_id, chunk_index),
    CONSTRAINT document_notes_tenant_id_document_id_fkey FOREIGN KEY(tenant_id, document_id)
        REFERENCES documents (tenant_id, document_id) ON DELETE CASCADE,
    CONSTRAINT document_notes_tenant_id_note_id_fkey FOREIGN KEY(tenant_id, note_id)
        REFERENCES memory_notes (tenant_id, note_id) ON DELETE CASCADE,
    CONSTRAINT document_notes_scope_check CHECK (scope IN ('agent_private', 'project_shared', 'org_shared', 'public'))
);
COMMENT ON COLUMN document_notes.owned IS 'made for this document, and deleted with it';
CREATE INDEX document_notes_note_idx ON document_notes (tenant_id, note_id);
CREATE TABLE repairs (
    tenant_id TEXT NOT NULL,
    repair_id UUID NOT NULL,
    project_id TEXT NOT NULL,
    action TEXT NOT NULL,
    success BOOLEAN NOT NULL,
    affected INTEGER NOT NULL,
    message TEXT NOT NULL,
    requested_by TEXT NOT NULL,
    score_before DOUBLE PRECISION,
    score_after DOUBLE PRECISION,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT repairs_pkey PRIMARY KEY (tenant_id, repair_id)
);
COMMENT ON COLUMN repairs.requested_by IS 'the id of a key, or maintenance';
CREATE INDEX repairs_action_idx ON repairs (tenant_id, project_id, action, created_at);
"""

RULES: dict[str, tuple[Rule, str]] = {
    "memory_reviews": (Rule.MEMORY, "SELECT, INSERT, UPDATE"),
    "llm_calls": (Rule.PROJECT, "SELECT, INSERT, DELETE"),
    "llm_usage": (Rule.REACH, "SELECT, INSERT, UPDATE"),
    "documents": (Rule.MEMORY, "SELECT, INSERT, UPDATE"),
    "document_notes": (Rule.MEMORY, "SELECT, INSERT, UPDATE"),
    "repairs": (Rule.PROJECT, "SELECT, INSERT, DELETE"),
}

# New functions, and those that changed, as they are now.
FUNCTIONS: tuple[str, ...] = (
    """
CREATE OR REPLACE FUNCTION read_job(
    p_tenant text, p_project text, p_agent text, p_gardens uuid[], p_reach text, p_job uuid)
RETURNS TABLE (
    job_id uuid, project_id text, kind text, status text, priority smallint, attempts int, max_attempts int,
    created_by text, last_error text, created_at timestamptz, available_at timestamptz, started_at timestamptz,
    finished_at timestamptz, result jsonb)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM set_scope(p_tenant, p_project, p_agent, p_gardens, p_reach);
    RETURN QUERY
    SELECT j.job_id, j.project_id, j.kind, j.status, j.priority, j.attempts, j.max_attempts, j.created_by, j.last_error,
           j.created_at, j.available_at, j.started_at, j.finished_at, j.result
    FROM jobs j WHERE j.tenant_id = p_tenant AND j.job_id = p_job;
END
$$;
""",
)

# And as they were.
OLD_FUNCTIONS: tuple[str, ...] = (
    """
CREATE OR REPLACE FUNCTION read_job(
    p_tenant text, p_project text, p_agent text, p_gardens uuid[], p_reach text, p_job uuid)
RETURNS TABLE (
    job_id uuid, project_id text, kind text, status text, priority smallint, attempts int, max_attempts int,
    created_by text, last_error text, created_at timestamptz, available_at timestamptz, started_at timestamptz,
    finished_at timestamptz)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM set_scope(p_tenant, p_project, p_agent, p_gardens, p_reach);
    RETURN QUERY
    SELECT j.job_id, j.project_id, j.kind, j.status, j.priority, j.attempts, j.max_attempts, j.created_by, j.last_error,
           j.created_at, j.available_at, j.started_at, j.finished_at
    FROM jobs j WHERE j.tenant_id = p_tenant AND j.job_id = p_job;
END
$$;
""",
)

SIGNATURES: tuple[str, ...] = ()
# Functions that answer otherwise than before: made anew instead of replaced.
RETYPED: tuple[tuple[str, str], ...] = (
    ("read_job(text, text, text, uuid[], text, uuid)", "read_job(text, text, text, uuid[], text, uuid)"),
)

UNDO = """
DROP TABLE repairs, document_notes, documents, llm_usage, llm_calls, memory_reviews;
ALTER TABLE jobs DROP COLUMN result;
ALTER TABLE memory_history DROP COLUMN proposal;
DROP INDEX memory_notes_derived_idx;
ALTER TABLE memory_notes DROP CONSTRAINT memory_notes_confidence_check, DROP COLUMN extraction_model,
    DROP COLUMN confidence, DROP COLUMN derived_from;
"""


def _grant(signature: str) -> None:
    op.execute(f"REVOKE EXECUTE ON FUNCTION {signature} FROM PUBLIC")
    op.execute(f"GRANT EXECUTE ON FUNCTION {signature} TO {APP_ROLE}")


def upgrade() -> None:
    execute_literal(TABLES)
    for table, (rule, grants) in RULES.items():
        enable_tenant_rls(op.execute, table, rule=rule, grants=grants)
    for before, _ in RETYPED:
        op.execute(f"DROP FUNCTION {before}")
    for function in FUNCTIONS:
        execute_literal(function)
    for signature in SIGNATURES:
        _grant(signature)
    for _, now in RETYPED:
        _grant(now)


def downgrade() -> None:
    for _, now in RETYPED:
        op.execute(f"DROP FUNCTION {now}")
    for function in OLD_FUNCTIONS:
        execute_literal(function)
    for before, _ in RETYPED:
        _grant(before)
    execute_literal(UNDO)
    for signature in reversed(SIGNATURES):
        op.execute(f"DROP FUNCTION {signature}")
