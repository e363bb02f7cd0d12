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
CREATE TABLE document_entity_mentions (
    tenant_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    document_id UUID NOT NULL,
    entity_id UUID NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    suppression SMALLINT DEFAULT 0 NOT NULL,
    CONSTRAINT document_entity_mentions_pkey PRIMARY KEY (tenant_id, document_id, entity_id),
    CONSTRAINT document_entity_mentions_tenant_id_document_id_fkey FOREIGN KEY(tenant_id, document_id)
        REFERENCES documents (tenant_id, document_id) ON DELETE CASCADE,
    CONSTRAINT document_entity_mentions_tenant_id_entity_id_fkey FOREIGN KEY(tenant_id, entity_id)
        REFERENCES graph_entities (tenant_id, entity_id) ON DELETE CASCADE
);
CREATE INDEX document_entity_mentions_entity_idx ON document_entity_mentions (tenant_id, entity_id, document_id);
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
CREATE INDEX memory_notes_deleted_idx ON memory_notes (tenant_id, deleted_at, note_id) WHERE deleted_at IS NOT NULL;
CREATE INDEX jobs_lost_idx ON jobs (tenant_id, finished_at) WHERE status IN ('dead', 'failed');
"""

RULES: dict[str, tuple[Rule, str]] = {
    "memory_reviews": (Rule.MEMORY, "SELECT, INSERT, UPDATE"),
    "llm_calls": (Rule.PROJECT, "SELECT, INSERT, DELETE"),
    "llm_usage": (Rule.REACH, "SELECT, INSERT, UPDATE"),
    "documents": (Rule.MEMORY, "SELECT, INSERT, UPDATE"),
    "document_notes": (Rule.MEMORY, "SELECT, INSERT, UPDATE"),
    "document_entity_mentions": (Rule.NAMES, "SELECT"),
    "repairs": (Rule.PROJECT, "SELECT, INSERT, DELETE"),
}

# New functions, and those that changed, as they are now.
FUNCTIONS: tuple[str, ...] = (
    """
CREATE OR REPLACE FUNCTION apply_extraction(
    p_tenant text, p_project text, p_note uuid, p_version int, p_model text, p_drafts json, p_records json,
    p_link jsonb, p_attempts int, OUT changed boolean, OUT created int, OUT deduped int, OUT link_job uuid)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_source memory_notes;
    v_now timestamptz := clock_timestamp();
    v_made uuid[] := '{}';
BEGIN
    created := 0;
    deduped := 0;
    SELECT n.* INTO v_source FROM memory_notes n
    WHERE n.tenant_id = p_tenant AND n.note_id = p_note AND n.project_id = p_project FOR UPDATE;
    changed := NOT FOUND OR v_source.deleted_at IS NOT NULL OR v_source.version <> p_version;
    IF changed THEN
        RETURN;
    END IF;
    IF json_array_length(p_drafts) > 0 THEN
        WITH made AS (
            INSERT INTO memory_notes AS n (
                tenant_id, note_id, project_id, agent_id, scope, garden_id, owner_key, type, content, content_hash,
                tags, author, occurred_at, pinned, derived_from, confidence, extraction_model, created_at, updated_at,
                terms, telling)
            SELECT p_tenant, d.note_id, p_project, v_source.agent_id, v_source.scope, v_source.garden_id,
                   v_source.owner_key, d.type, d.content, d.hash, v_source.tags, v_source.author,
                   -- Outside of its thread: there it would stand between what was said.
                   v_source.occurred_at, false, p_note, d.confidence, p_model, v_now, v_now,
                   note_terms(p_tenant, p_project, v_source.author, v_source.occurred_at, v_source.tags, d.content),
                   count_telling(p_tenant, p_project, d.content)
            FROM json_to_recordset(p_drafts)
                AS d(note_id uuid, content text, hash text, type text, confidence double precision)
            ORDER BY d.hash
            ON CONFLICT DO NOTHING
            RETURNING n.note_id
        ) SELECT coalesce(array_agg(m.note_id), '{}') INTO v_made FROM made m;
        created := cardinality(v_made);
        deduped := json_array_length(p_drafts) - created;
    END IF;
    INSERT INTO memory_history (
        tenant_id, history_id, project_id, note_id, agent_id, scope, garden_id, event, version, changed_by, reason,
        new_content, proposal, created_at)
    SELECT p_tenant, make_id(), p_project, d.note_id, v_source.agent_id, v_source.scope, v_source.garden_id, 'created',
           1, 'pipeline', NULL, d.content, d.proposal, v_now
    FROM json_to_recordset(p_drafts) AS d(note_id uuid, content text, proposal jsonb)
    WHERE d.note_id = ANY (v_made)
    UNION ALL
    SELECT p_tenant, make_id(), p_project, p_note, v_source.agent_id, v_source.scope, v_source.garden_id, 'none',
           p_version, 'pipeline', d.proposal ->> 'reason', NULL,
           d.proposal || jsonb_strip_nulls(jsonb_build_object('outcome', 'deduped', 'existing_note_id', (
               SELECT n.note_id FROM memory_notes n
               WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND n.content_hash = d.hash
                 AND n.scope = v_source.scope AND n.owner_key = v_source.owner_key AND n.thread_id IS NULL
                 AND n.deleted_at IS NULL LIMIT 1))), v_now
    FROM json_to_recordset(p_drafts) AS d(note_id uuid, hash text, proposal jsonb)
    WHERE d.note_id <> ALL (v_made)
    UNION ALL
    SELECT p_tenant, make_id(), p_project, p_note, v_source.agent_id, v_source.scope, v_source.garden_id, 'none',
           p_version, 'pipeline', r.reason, NULL, r.proposal, v_now
    FROM json_to_recordset(p_records) AS r(reason text, proposal jsonb);
    IF created > 0 THEN
        PERFORM queue_units(p_tenant, p_project, 'note', v_made);
    END IF;
    IF p_link IS NOT NULL THEN
        link_job := make_id();
        INSERT INTO jobs (
            tenant_id, job_id, project_id, agent_id, kind, payload, dedupe_key, max_attempts, created_by, available_at,
            created_at)
        VALUES (p_tenant, link_job, p_project, v_source.agent_id, 'graph_link', p_link, p_note::text, p_attempts,
                'pipeline', v_now, v_now)
        ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            -- Of what the note said before: it is to be linked first.
            UPDATE jobs j SET payload = p_link
            WHERE j.tenant_id = p_tenant AND j.project_id = p_project AND j.kind = 'graph_link'
              AND j.dedupe_key = p_note::text AND j.status = 'pending'
            RETURNING j.job_id INTO link_job;
        END IF;
    END IF;
    UPDATE memory_notes n SET extraction_status = 'completed' WHERE n.tenant_id = p_tenant AND n.note_id = p_note;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION extraction_start(p_tenant text, p_project text)
RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN CASE WHEN (
        SELECT (p.settings -> 'pipeline' ->> 'enabled')::boolean FROM projects p
        WHERE p.tenant_id = p_tenant AND p.project_id = p_project) THEN 'pending' ELSE 'none' END;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION follow_job(p_tenant text, p_job uuid)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_job jobs;
    v_now timestamptz := clock_timestamp();
BEGIN
    SELECT j.* INTO v_job FROM jobs j WHERE j.tenant_id = p_tenant AND j.job_id = p_job;
    IF NOT FOUND OR (p_tenant <> coalesce(nullif(current_setting('app.tenant_id', true), ''), p_tenant)) THEN
        RETURN;
    END IF;
    IF v_job.kind = 'extract' THEN
        UPDATE memory_notes n
        SET extraction_status = CASE WHEN v_job.status IN ('failed', 'dead') THEN 'failed'
                                     WHEN v_job.status = 'cancelled' THEN 'none'
                                     WHEN v_job.status = 'pending' THEN 'pending' ELSE n.extraction_status END
        WHERE n.tenant_id = p_tenant AND n.note_id = (v_job.payload ->> 'note_id')::uuid;
    ELSIF v_job.kind = 'document_ingest' THEN
        UPDATE documents d
        SET status = CASE WHEN v_job.status IN ('failed', 'dead', 'cancelled') THEN 'failed'
                          WHEN v_job.status = 'pending' THEN 'queued' ELSE d.status END,
            error = CASE WHEN v_job.status IN ('failed', 'dead') THEN v_job.last_error
                         WHEN v_job.status = 'cancelled' THEN 'cancelled: its job was cancelled'
                         WHEN v_job.status = 'pending' THEN NULL ELSE d.error END,
            updated_at = v_now
        WHERE d.tenant_id = p_tenant AND d.document_id = (v_job.payload ->> 'document_id')::uuid
          AND d.status <> 'done';
    END IF;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION queue_extractions(p_tenant text, p_project text, p_notes uuid[], p_key text)
RETURNS TABLE (note_id uuid, job_id uuid)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    v_pipeline jsonb;
    v_now timestamptz := clock_timestamp();
BEGIN
    SELECT p.settings -> 'pipeline' INTO v_pipeline FROM projects p
    WHERE p.tenant_id = p_tenant AND p.project_id = p_project;
    IF NOT coalesce((v_pipeline ->> 'enabled')::boolean, false) THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH wanted AS MATERIALIZED (
        SELECT n.note_id, n.agent_id, n.garden_id FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes) AND n.type <> 'document_chunk'
          AND n.derived_from IS NULL
    ), made AS (
        INSERT INTO jobs AS j (
            tenant_id, job_id, project_id, agent_id, kind, payload, dedupe_key, max_attempts, created_by, available_at,
            created_at)
        SELECT p_tenant, make_id(), p_project, w.agent_id, 'extract',
               jsonb_strip_nulls(jsonb_build_object('note_id', w.note_id, 'garden_id', w.garden_id)), w.note_id::text,
               coalesce((v_pipeline ->> 'worker_max_retries')::int, 3), p_key, v_now, v_now
        FROM wanted w ORDER BY w.note_id
        ON CONFLICT DO NOTHING
        RETURNING j.dedupe_key, j.job_id
    )
    SELECT w.note_id, coalesce(m.job_id, j.job_id) FROM wanted w
    LEFT JOIN made m ON m.dedupe_key = w.note_id::text
    LEFT JOIN jobs j ON j.tenant_id = p_tenant AND j.project_id = p_project AND j.kind = 'extract'
        AND j.dedupe_key = w.note_id::text AND j.status IN ('pending', 'leased');
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION read_extraction(p_tenant text, p_project text, p_note uuid, p_patterns text[])
RETURNS TABLE (
    content text, author text, type text, scope text, garden_id uuid, agent_id text, owner_key text, tags text[],
    occurred_at timestamptz, version int, extraction_status text, pipeline jsonb, spent bigint)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    v_patterns text[] := p_patterns || ARRAY(
        SELECT r.pattern FROM embedding_redactions r WHERE r.tenant_id = p_tenant ORDER BY r.created_at, r.pattern_id);
BEGIN
    RETURN QUERY
    SELECT (redact_text(n.content, v_patterns)).words, (redact_text(n.author, v_patterns)).words, n.type, n.scope,
           n.garden_id, n.agent_id, n.owner_key, n.tags, n.occurred_at, n.version, n.extraction_status,
           p.settings -> 'pipeline',
           spent_tokens(p_tenant, p_project, coalesce(p.settings -> 'pipeline' ->> 'extraction_budget_period', 'month'))
    FROM memory_notes n
    JOIN projects p ON p.tenant_id = p_tenant AND p.project_id = p_project
    WHERE n.tenant_id = p_tenant AND n.note_id = p_note AND n.project_id = p_project AND n.deleted_at IS NULL;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION record_llm_call(
    p_tenant text, p_project text, p_call uuid, p_job uuid, p_purpose text, p_model text, p_input int, p_output int,
    p_succeeded boolean, p_duration_ms int)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET synchronous_commit = off
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    INSERT INTO llm_calls (
        tenant_id, call_id, project_id, job_id, purpose, model, input_tokens, output_tokens, succeeded, duration_ms,
        created_at)
    VALUES (p_tenant, p_call, p_project, p_job, p_purpose, p_model, p_input, p_output, p_succeeded, p_duration_ms,
            v_now)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO llm_usage AS u (tenant_id, project_id, day, model, calls, failures, input_tokens, output_tokens)
    VALUES (p_tenant, p_project, (v_now AT TIME ZONE 'UTC')::date, p_model, 1, (NOT p_succeeded)::int, p_input,
            p_output)
    ON CONFLICT (tenant_id, project_id, day, model) DO UPDATE
    SET calls = u.calls + 1, failures = u.failures + excluded.failures,
        input_tokens = u.input_tokens + excluded.input_tokens, output_tokens = u.output_tokens + excluded.output_tokens;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION similar_notes(
    p_tenant text, p_project text, p_text text, p_model smallint, p_dimensions int, p_vector text, p_scope text,
    p_owner text, p_skipped uuid[], p_patterns text[], p_limit int)
RETURNS TABLE (note_id uuid, type text, content text, version int, score double precision)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_query vector := p_vector::vector;
    v_terms record;
    v_idf double precision[];
    v_found uuid[] := '{}';
    v_scores double precision[] := '{}';
    v_best double precision;
    v_near uuid[] := '{}';
    v_patterns text[] := p_patterns || ARRAY(
        SELECT r.pattern FROM embedding_redactions r WHERE r.tenant_id = p_tenant ORDER BY r.created_at, r.pattern_id);
BEGIN
    SELECT w.* INTO v_terms FROM weigh_terms(p_tenant, p_project, 'note', p_text, 64) w;
    v_idf := ARRAY(SELECT ln(1 + (v_terms.total - d + 0.5) / (d + 0.5)) FROM unnest(v_terms.documents) d);
    SELECT coalesce(array_agg(m.note_id), '{}'), coalesce(array_agg(m.score), '{}'), max(m.score)
    INTO v_found, v_scores, v_best
    FROM match_notes(v_terms.terms, v_idf, choose_terms(v_terms.terms, v_terms.documents, 2000), v_terms.average, 4000,
                     20 + cardinality(p_skipped), NULL, p_scope) m
    WHERE m.note_id <> ALL (p_skipped);
    IF v_query IS NOT NULL THEN
        v_near := ARRAY(
            SELECT n.owner_id FROM near_units(
                p_tenant, p_project, 'note', p_model, p_dimensions, p_vector, 20, p_scope) n);
    END IF;
    RETURN QUERY
    SELECT n.note_id, n.type, (redact_text(n.content, v_patterns)).words, n.version, s.score
    FROM (
        SELECT u.id, max(u.score) / nullif(v_best, 0) AS lexical
        FROM (SELECT f.id, f.score FROM unnest(v_found, v_scores) f(id, score)
              UNION ALL SELECT f.id, NULL FROM unnest(v_near) f(id)) u
        WHERE u.id <> ALL (p_skipped) GROUP BY u.id
    ) h
    CROSS JOIN LATERAL (
        SELECT n.note_id, n.type, n.content, n.version FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = h.id AND n.project_id = p_project AND n.deleted_at IS NULL
          AND n.suppression = 0 AND n.scope = p_scope AND n.owner_key = p_owner AND n.type <> 'document_chunk'
        OFFSET 0) n
    LEFT JOIN LATERAL (
        SELECT -(e.vector <#> v_query) AS cosine FROM embeddings e
        WHERE e.tenant_id = p_tenant AND e.model_id = p_model AND e.view = 'self' AND e.owner_kind = 'note'
          AND e.owner_id = h.id
        OFFSET 0) e ON v_query IS NOT NULL
    CROSS JOIN LATERAL (
        SELECT CASE WHEN e.cosine IS NULL THEN h.lexical WHEN h.lexical IS NULL THEN e.cosine
                    ELSE 0.7 * e.cosine + 0.3 * h.lexical END AS score) s
    WHERE s.score >= 0.3
    ORDER BY s.score DESC, n.note_id LIMIT p_limit;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION spent_tokens(p_tenant text, p_project text, p_period text)
RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT coalesce(sum(u.input_tokens + u.output_tokens), 0)::bigint FROM llm_usage u
        WHERE u.tenant_id = p_tenant AND u.project_id = p_project
          AND u.day >= CASE p_period WHEN 'total' THEN '-infinity'::date
                       ELSE date_trunc(p_period, clock_timestamp() AT TIME ZONE 'UTC')::date END);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION finish_job(
    p_tenant text, p_project text, p_job uuid, p_owner text, p_status text, p_error text,
    p_available_at timestamptz)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    PERFORM set_scope(p_tenant, p_project, '', NULL, CASE WHEN p_project IS NULL THEN 'cross_project' ELSE '' END);
    UPDATE jobs j
    SET status = p_status, last_error = p_error, lease_owner = NULL, lease_expires_at = NULL,
        available_at = coalesce(p_available_at, j.available_at),
        attempts = CASE WHEN p_status = 'pending' AND p_error IS NULL THEN j.attempts - 1 ELSE j.attempts END,
        finished_at = CASE WHEN p_status = 'pending' THEN NULL ELSE v_now END
    WHERE j.tenant_id = p_tenant AND j.job_id = p_job AND j.status = 'leased'
      AND j.lease_owner = p_owner;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF p_status IN ('failed', 'dead') THEN
        PERFORM follow_job(p_tenant, p_job);
    END IF;
    RETURN true;
END
$$;
""",
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
    """
CREATE OR REPLACE FUNCTION reap_leases(p_limit int)
RETURNS TABLE (tenant_id text, job_id uuid, status text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    FOR tenant_id, job_id, status IN
        WITH pick AS (
            SELECT j.tenant_id, j.job_id FROM public.jobs j
            WHERE j.status = 'leased' AND j.lease_expires_at < v_now
            ORDER BY j.lease_expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED)
        UPDATE public.jobs j
        SET status = CASE WHEN j.attempts >= j.max_attempts THEN 'dead' ELSE 'pending' END,
            finished_at = CASE WHEN j.attempts >= j.max_attempts THEN v_now END,
            available_at = v_now, lease_owner = NULL, lease_expires_at = NULL,
            last_error = 'lease_expired: the worker stopped answering'
        FROM pick WHERE j.tenant_id = pick.tenant_id AND j.job_id = pick.job_id
        RETURNING j.tenant_id, j.job_id, j.status
    LOOP
        IF status = 'dead' THEN
            PERFORM public.follow_job(tenant_id, job_id);
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
""",
)

# And as they were.
OLD_FUNCTIONS: tuple[str, ...] = (
    """
CREATE OR REPLACE FUNCTION finish_job(
    p_tenant text, p_project text, p_job uuid, p_owner text, p_status text, p_error text,
    p_available_at timestamptz)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    PERFORM set_scope(p_tenant, p_project, '', NULL, CASE WHEN p_project IS NULL THEN 'cross_project' ELSE '' END);
    UPDATE jobs j
    SET status = p_status, last_error = p_error, lease_owner = NULL, lease_expires_at = NULL,
        available_at = coalesce(p_available_at, j.available_at),
        attempts = CASE WHEN p_status = 'pending' AND p_error IS NULL THEN j.attempts - 1 ELSE j.attempts END,
        finished_at = CASE WHEN p_status = 'pending' THEN NULL ELSE v_now END
    WHERE j.tenant_id = p_tenant AND j.job_id = p_job AND j.status = 'leased'
      AND j.lease_owner = p_owner;
    RETURN FOUND;
END
$$;
""",
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
    """
CREATE OR REPLACE FUNCTION reap_leases(p_limit int)
RETURNS TABLE (tenant_id text, job_id uuid, status text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    WITH pick AS (
        SELECT j.tenant_id, j.job_id FROM public.jobs j
        WHERE j.status = 'leased' AND j.lease_expires_at < v_now
        ORDER BY j.lease_expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED)
    UPDATE public.jobs j
    SET status = CASE WHEN j.attempts >= j.max_attempts THEN 'dead' ELSE 'pending' END,
        finished_at = CASE WHEN j.attempts >= j.max_attempts THEN v_now END,
        available_at = v_now, lease_owner = NULL, lease_expires_at = NULL,
        last_error = 'lease_expired: the worker stopped answering'
    FROM pick WHERE j.tenant_id = pick.tenant_id AND j.job_id = pick.job_id
    RETURNING j.tenant_id, j.job_id, j.status;
END
$$;
""",
)

SIGNATURES: tuple[str, ...] = (
    "apply_extraction(text, text, uuid, int, text, json, json, jsonb, int)",
    "extraction_start(text, text)",
    "follow_job(text, uuid)",
    "queue_extractions(text, text, uuid[], text)",
    "read_extraction(text, text, uuid, text[])",
    "record_llm_call(text, text, uuid, uuid, text, text, int, int, boolean, int)",
    "similar_notes(text, text, text, smallint, int, text, text, text, uuid[], text[], int)",
    "spent_tokens(text, text, text)",
)
# Functions that answer otherwise than before: made anew instead of replaced.
RETYPED: tuple[tuple[str, str], ...] = (
    ("read_job(text, text, text, uuid[], text, uuid)", "read_job(text, text, text, uuid[], text, uuid)"),
)

UNDO = """
DROP TABLE document_entity_mentions;
DROP INDEX jobs_lost_idx;
DROP INDEX memory_notes_deleted_idx;
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
