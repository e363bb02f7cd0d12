"""The pipeline: derived notes, proposals, reviews, calls of models and their cost, documents, repairs."""

from alembic import op
from app.db.migrations import execute_literal
from app.db.rls import APP_ROLE, Rule, enable_tenant_rls

revision = "0007"
down_revision = "0006"
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
    p_link jsonb, p_attempts int, p_owner text, p_lease interval, OUT changed boolean, OUT created int,
    OUT deduped int, OUT link_job uuid, OUT waits boolean)
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
    waits := false;
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
            -- Also where it is said within a thread.
            WHERE NOT EXISTS (
                SELECT FROM memory_notes x
                WHERE x.tenant_id = p_tenant AND x.project_id = p_project AND x.content_hash = d.hash
                  AND x.scope = v_source.scope AND x.owner_key = v_source.owner_key AND x.deleted_at IS NULL)
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
                 AND n.scope = v_source.scope AND n.owner_key = v_source.owner_key AND n.deleted_at IS NULL
               ORDER BY n.created_at LIMIT 1))), v_now
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
            created_at, status, attempts, lease_owner, lease_expires_at, started_at)
        VALUES (p_tenant, link_job, p_project, v_source.agent_id, 'graph_link', p_link, p_note::text, p_attempts,
                'pipeline', v_now, v_now, 'leased', 1, p_owner, v_now + p_lease, v_now)
        ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            -- One of what the note said before is open: it is to be linked first, and this one after it.
            waits := true;
            UPDATE jobs j SET payload = p_link
            WHERE j.tenant_id = p_tenant AND j.project_id = p_project AND j.kind = 'graph_link'
              AND j.dedupe_key = p_note::text || ':next' AND j.status = 'pending'
            RETURNING j.job_id INTO link_job;
            IF NOT FOUND THEN
                link_job := make_id();
                INSERT INTO jobs (
                    tenant_id, job_id, project_id, agent_id, kind, payload, dedupe_key, max_attempts, created_by,
                    available_at, created_at)
                VALUES (p_tenant, link_job, p_project, v_source.agent_id, 'graph_link', p_link,
                        CASE WHEN NOT EXISTS (
                            SELECT FROM jobs j
                            WHERE j.tenant_id = p_tenant AND j.project_id = p_project AND j.kind = 'graph_link'
                              AND j.dedupe_key = p_note::text || ':next' AND j.status = 'leased')
                        THEN p_note::text || ':next' END, p_attempts, 'pipeline', v_now, v_now);
            END IF;
        END IF;
    END IF;
    UPDATE memory_notes n SET extraction_status = 'completed' WHERE n.tenant_id = p_tenant AND n.note_id = p_note;
END
$$;
""",
    r"""
CREATE OR REPLACE FUNCTION boost_notes(
    p_tenant text, p_project text, p_words text[], p_scope text, p_deadline interval, OUT notes uuid[],
    OUT timed_out boolean)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_deadline timestamptz := clock_timestamp() + p_deadline;
    v_now timestamptz := clock_timestamp();
    v_patterns text[] := ARRAY(
        SELECT '%' || regexp_replace(w, '([%_\\])', '\\\1', 'g') || '%' FROM unnest(p_words) w);
    v_entities uuid[];
    v_near uuid[] := '{}';
BEGIN
    notes := '{}';
    timed_out := false;
    v_entities := ARRAY(
        SELECT h.entity_id FROM (
            SELECT e.entity_id FROM graph_entities e
            WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.merged_into IS NULL
              AND e.canonical_norm LIKE ANY (v_patterns)
            ORDER BY length(e.canonical_norm), e.entity_id LIMIT 200) h
        CROSS JOIN LATERAL (
            SELECT count(*) AS mentions FROM (
                SELECT FROM note_entity_mentions m
                WHERE m.tenant_id = p_tenant AND m.entity_id = h.entity_id LIMIT 1000) c) m
        ORDER BY m.mentions DESC, h.entity_id LIMIT 20);
    IF clock_timestamp() < v_deadline THEN
        v_near := ARRAY(
            SELECT x.id FROM (
                SELECT n.id FROM unnest(v_entities) s(id)
                CROSS JOIN LATERAL (
                    (SELECT x.object_entity_id AS id, x.confidence FROM entity_edges x
                     WHERE x.tenant_id = p_tenant AND x.project_id = p_project AND x.subject_entity_id = s.id
                       AND x.retracted_at IS NULL AND x.valid_from <= v_now AND x.valid_until > v_now
                     ORDER BY x.confidence DESC, x.edge_id LIMIT 50)
                    UNION ALL
                    (SELECT x.subject_entity_id, x.confidence FROM entity_edges x
                     WHERE x.tenant_id = p_tenant AND x.project_id = p_project AND x.object_entity_id = s.id
                       AND x.retracted_at IS NULL AND x.valid_from <= v_now AND x.valid_until > v_now
                     ORDER BY x.confidence DESC, x.edge_id LIMIT 50)) n
                WHERE n.id <> ALL (v_entities)
                GROUP BY n.id ORDER BY max(n.confidence) DESC, n.id LIMIT 50) x);
    ELSE
        timed_out := true;
    END IF;
    IF clock_timestamp() < v_deadline THEN
        notes := ARRAY(
            SELECT DISTINCT n.note_id FROM unnest(v_entities || v_near) s(id)
            CROSS JOIN LATERAL (
                SELECT m.note_id FROM note_entity_mentions m
                WHERE m.tenant_id = p_tenant AND m.project_id = p_project AND m.entity_id = s.id
                ORDER BY m.note_id DESC LIMIT 200) m
            CROSS JOIN LATERAL (
                SELECT n.note_id FROM memory_notes n
                WHERE n.tenant_id = p_tenant AND n.note_id = m.note_id AND n.project_id = p_project
                  AND n.deleted_at IS NULL AND n.suppression = 0 AND (p_scope IS NULL OR n.scope = p_scope)
                OFFSET 0) n
            ORDER BY n.note_id LIMIT 200);
    END IF;
    timed_out := timed_out OR clock_timestamp() >= v_deadline;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION check_terms(p_limit int, OUT looked bigint, OUT repaired bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_ids uuid[];
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RAISE EXCEPTION 'check_terms needs tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;
    v_ids := ARRAY(
        SELECT n.note_id FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.deleted_at IS NULL AND n.suppression = 0
          AND n.terms_length = 0
        ORDER BY n.note_id DESC LIMIT p_limit);
    v_ids := v_ids || ARRAY(
        SELECT n.note_id FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.deleted_at IS NULL AND n.suppression = 0
          AND n.terms_length > 0
        ORDER BY n.created_at DESC, n.note_id DESC LIMIT p_limit - cardinality(v_ids));
    looked := cardinality(v_ids);
    WITH due AS (
        SELECT n.note_id FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_ids)
          AND n.terms <> note_terms(v_tenant, v_project, n.author, n.occurred_at, n.tags, n.content)
        ORDER BY n.note_id FOR UPDATE SKIP LOCKED
    )
    UPDATE memory_notes n
    SET terms = note_terms(v_tenant, v_project, n.author, n.occurred_at, n.tags, n.content),
        telling = count_telling(v_tenant, v_project, n.content)
    FROM due WHERE n.tenant_id = v_tenant AND n.note_id = due.note_id;
    GET DIAGNOSTICS repaired = ROW_COUNT;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION diagnose_project(p_least double precision, p_sample int, p_revivable int)
RETURNS TABLE (
    settings jsonb, depth bigint, oldest_seconds double precision, ended bigint, dead bigint, failed bigint,
    revivable bigint, long_leases bigint, stale_leases bigint, notes bigint, deleted bigint, expired bigint,
    unindexed bigint, sampled bigint, stale bigint, embedding boolean, units bigint, vectors bigint, queued bigint,
    calls bigint, succeeded bigint, recoveries bigint, extractions bigint, graph_facts boolean, lost_links bigint,
    input_tokens bigint, output_tokens bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_since date;
    v_model smallint;
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RAISE EXCEPTION 'diagnose_project needs tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;
    SELECT p.settings INTO settings FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project;

    SELECT count(*), greatest(0, coalesce(extract(epoch FROM v_now - min(j.available_at)), 0))
    INTO depth, oldest_seconds FROM jobs j
    WHERE j.tenant_id = v_tenant AND j.project_id = v_project AND j.status = 'pending';
    SELECT count(*) FILTER (WHERE coalesce(j.started_at, j.created_at) < v_now - interval '10 minutes'),
           count(*) FILTER (WHERE j.lease_expires_at < v_now)
    INTO long_leases, stale_leases FROM jobs j
    WHERE j.tenant_id = v_tenant AND j.project_id = v_project AND j.status = 'leased';
    SELECT count(*) FILTER (WHERE j.status = 'dead'), count(*) FILTER (WHERE j.status = 'failed'),
           count(*) FILTER (WHERE j.kind = 'graph_link')
    INTO dead, failed, lost_links FROM jobs j
    WHERE j.tenant_id = v_tenant AND j.status IN ('dead', 'failed') AND j.finished_at >= v_now - interval '24 hours'
      AND j.project_id = v_project;
    -- The first condition is the index's; what was cancelled did not end by itself.
    SELECT dead + failed + count(*) INTO ended FROM jobs j
    WHERE j.tenant_id = v_tenant AND j.status IN ('completed', 'cancelled') AND j.status = 'completed'
      AND j.finished_at >= v_now - interval '24 hours' AND j.project_id = v_project;
    SELECT count(*) INTO revivable FROM find_revivable(v_tenant, v_project, p_revivable);

    SELECT count(*), count(*) FILTER (WHERE n.deleted_at IS NOT NULL),
           count(*) FILTER (WHERE n.deleted_at < v_now - interval '30 days'),
           count(*) FILTER (WHERE n.deleted_at IS NULL AND n.terms_length = 0),
           count(*) FILTER (WHERE n.deleted_at IS NULL AND n.extraction_status = 'completed')
    INTO notes, deleted, expired, unindexed, extractions FROM memory_notes n
    WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.suppression = 0;
    SELECT count(*), count(*) FILTER (WHERE s.terms <> note_terms(
               v_tenant, v_project, s.author, s.occurred_at, s.tags, s.content))
    INTO sampled, stale FROM (
        SELECT n.terms, n.author, n.occurred_at, n.tags, n.content FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.suppression = 0 AND n.deleted_at IS NULL
          AND n.terms_length > 0
        ORDER BY n.created_at DESC, n.note_id DESC LIMIT p_sample) s;

    SELECT m.model_id INTO v_model FROM embedding_models m WHERE m.active;
    embedding := v_model IS NOT NULL;
    IF embedding THEN
        units := notes - deleted
            + (SELECT count(*) FROM graph_facts f
               WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.confidence > p_least
                 AND f.suppression = 0)
            + (SELECT count(*) FROM memory_cards c
               WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.suppression = 0);
        SELECT count(*) INTO vectors FROM embeddings e
        WHERE e.tenant_id = v_tenant AND e.model_id = v_model AND e.view = 'self' AND e.project_id = v_project
          AND e.suppression = 0;
        SELECT count(*) INTO queued FROM embedding_queue q
        WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = v_model;
    ELSE
        units := 0;
        vectors := 0;
        queued := 0;
    END IF;
    graph_facts := EXISTS (
        SELECT FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.source = 'pipeline');

    SELECT count(*), count(*) FILTER (WHERE c.succeeded) INTO calls, succeeded FROM (
        SELECT c.succeeded FROM llm_calls c
        WHERE c.tenant_id = v_tenant AND c.project_id = v_project
        ORDER BY c.created_at DESC LIMIT 100) c;
    SELECT count(*) INTO recoveries FROM memory_history h
    WHERE h.tenant_id = v_tenant AND h.history_id >= first_id(v_now - interval '7 days') AND h.project_id = v_project
      AND h.event = 'recovered' AND h.created_at >= v_now - interval '7 days' AND h.suppression = 0;
    v_since := CASE coalesce(settings #>> '{pipeline,extraction_budget_period}', 'month')
        WHEN 'day' THEN (v_now AT TIME ZONE 'UTC')::date
        WHEN 'month' THEN date_trunc('month', v_now AT TIME ZONE 'UTC')::date
        ELSE '-infinity'::date END;
    SELECT coalesce(sum(u.input_tokens), 0), coalesce(sum(u.output_tokens), 0) INTO input_tokens, output_tokens
    FROM llm_usage u WHERE u.tenant_id = v_tenant AND u.project_id = v_project AND u.day >= v_since;
    RETURN NEXT;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION due_notes(p_tenant text, p_project text, p_step text, p_before timestamptz, p_limit int)
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_due uuid[] := '{}';
    v_after timestamptz := '-infinity';
    v_last uuid := '00000000-0000-0000-0000-000000000000';
    v_looked uuid[];
BEGIN
    WHILE cardinality(v_due) < p_limit LOOP
        v_looked := ARRAY(
            SELECT n.note_id FROM memory_notes n
            WHERE n.tenant_id = p_tenant AND n.deleted_at < p_before AND (n.deleted_at, n.note_id) > (v_after, v_last)
              AND n.project_id = p_project AND n.suppression = 0
              AND CASE p_step
                  WHEN 'links' THEN EXISTS (
                      SELECT FROM note_entity_mentions m WHERE m.tenant_id = p_tenant AND m.note_id = n.note_id)
                  WHEN 'vectors' THEN EXISTS (
                          SELECT FROM embeddings e
                          WHERE e.tenant_id = p_tenant AND e.model_id IN (SELECT m.model_id FROM embedding_models m)
                            AND e.view IN ('self', 'context') AND e.owner_kind = 'note' AND e.owner_id = n.note_id)
                      OR EXISTS (
                          SELECT FROM embedding_queue q
                          WHERE q.tenant_id = p_tenant AND q.project_id = p_project
                            AND q.model_id IN (SELECT m.model_id FROM embedding_models m)
                            AND q.owner_kind = 'note' AND q.owner_id = n.note_id)
                  ELSE NOT EXISTS (
                          SELECT FROM note_entity_mentions m WHERE m.tenant_id = p_tenant AND m.note_id = n.note_id)
                      AND NOT EXISTS (
                          SELECT FROM embeddings e
                          WHERE e.tenant_id = p_tenant AND e.model_id IN (SELECT m.model_id FROM embedding_models m)
                            AND e.view IN ('self', 'context') AND e.owner_kind = 'note' AND e.owner_id = n.note_id)
                  END
            ORDER BY n.deleted_at, n.note_id LIMIT p_limit FOR UPDATE SKIP LOCKED);
        EXIT WHEN cardinality(v_looked) = 0;
        SELECT n.deleted_at, n.note_id INTO v_after, v_last FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = ANY (v_looked) ORDER BY n.deleted_at DESC, n.note_id DESC LIMIT 1;
        v_due := v_due || ARRAY(
            SELECT u.id FROM unnest(v_looked) WITH ORDINALITY u(id, place)
            WHERE u.id <> ALL (kept_notes(p_tenant, p_project, v_looked)) ORDER BY u.place);
        EXIT WHEN cardinality(v_looked) < p_limit;
    END LOOP;
    RETURN v_due[1:p_limit];
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
CREATE OR REPLACE FUNCTION find_revivable(p_tenant text, p_project text, p_limit int)
RETURNS SETOF uuid
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
    RETURN QUERY
    SELECT d.job_id FROM (
        SELECT j.job_id, j.kind, j.payload, j.finished_at,
               row_number() OVER (PARTITION BY j.kind, coalesce(j.dedupe_key, j.job_id::text)
                                  ORDER BY j.finished_at DESC, j.job_id DESC) AS place
        FROM jobs j
        WHERE j.tenant_id = p_tenant AND j.project_id = p_project AND j.status = 'dead'
          AND j.kind <> 'maintenance_cycle' AND NOT coalesce(j.result ? 'requeued_at', false)
          AND NOT EXISTS (
              SELECT FROM jobs o
              WHERE o.tenant_id = p_tenant AND o.project_id = p_project AND o.kind = j.kind
                AND o.dedupe_key = j.dedupe_key AND o.status IN ('pending', 'leased'))
    ) d
    WHERE d.place = 1 AND target_stands(p_tenant, d.payload)
    ORDER BY d.kind IN ('extract', 'document_ingest') DESC, d.finished_at DESC, d.job_id DESC LIMIT p_limit;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION first_id(p_at timestamptz)
RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT (lpad(to_hex((extract(epoch FROM p_at) * 1000)::bigint), 12, '0') || '70008000000000000000')::uuid
$$;
""",
    """
CREATE OR REPLACE FUNCTION follow_job(p_tenant text, p_job uuid, p_status text DEFAULT NULL)
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
    -- Who looks after the leases of all tenants has no scope; everybody else keeps to their own.
    IF NOT FOUND OR p_tenant <> coalesce(nullif(current_setting('app.tenant_id', true), ''), p_tenant) THEN
        RETURN;
    END IF;
    v_job.status := coalesce(p_status, v_job.status);
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
            error = CASE WHEN v_job.status IN ('failed', 'dead') THEN coalesce(d.error, v_job.last_error)
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
CREATE OR REPLACE FUNCTION kept_notes(p_tenant text, p_project text, p_notes uuid[])
RETURNS uuid[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_kept uuid[];
    v_hold record;
BEGIN
    v_kept := ARRAY(
        SELECT n.note_id FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes)
          AND (n.suppression <> 0
               OR EXISTS (
                   SELECT FROM note_entity_mentions m
                   JOIN graph_entities e ON e.tenant_id = p_tenant AND e.entity_id = m.entity_id
                   WHERE m.tenant_id = p_tenant AND m.note_id = n.note_id
                     AND hidden_level(e.erased_scopes, e.held_scopes, n.scope) <> 0)
               OR EXISTS (
                   SELECT FROM graph_fact_evidence v
                   JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_id = v.fact_id
                   WHERE v.tenant_id = p_tenant AND v.note_id = n.note_id
                     AND (f.suppression <> 0 OR is_held(p_tenant, f.fact_id)))
               OR EXISTS (
                   SELECT FROM graph_fact_supersessions s
                   JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_id IN (s.from_fact_id, s.to_fact_id)
                   WHERE s.tenant_id = p_tenant AND s.note_id = n.note_id
                     AND (s.suppression <> 0 OR f.suppression <> 0 OR is_held(p_tenant, f.fact_id)))
               OR EXISTS (
                   SELECT FROM memory_reviews r
                   WHERE r.tenant_id = p_tenant AND n.note_id IN (r.note_id, r.target_note_id)
                     AND r.suppression <> 0)
               OR EXISTS (
                   SELECT FROM document_notes d
                   JOIN documents o ON o.tenant_id = p_tenant AND o.document_id = d.document_id
                   WHERE d.tenant_id = p_tenant AND d.note_id = n.note_id
                     AND (d.suppression <> 0 OR o.suppression <> 0))));
    -- What came to name somebody since the hold was issued is not linked to it yet.
    FOR v_hold IN
        SELECT t.scopes, name_pattern(p_tenant, t.entity_id) AS pattern FROM tombstones t
        WHERE t.tenant_id = p_tenant AND t.project_id = p_project AND t.legal_hold AND t.named
          AND NOT EXISTS (SELECT FROM tombstone_revocations r
                          WHERE r.tenant_id = p_tenant AND r.tombstone_id = t.tombstone_id)
    LOOP
        v_kept := v_kept || ARRAY(
            SELECT n.note_id FROM memory_notes n
            WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes) AND n.note_id <> ALL (v_kept)
              AND (v_hold.scopes IS NULL OR n.scope = ANY (v_hold.scopes))
              AND (normalize(lower(concat_ws(' ', n.content, n.author, n.thread_id, array_to_string(n.tags, ' '))))
                       ~ v_hold.pattern
                   OR EXISTS (SELECT FROM memory_history h
                              WHERE h.tenant_id = p_tenant AND h.note_id = n.note_id
                                AND normalize(lower(concat_ws(' ', h.old_content, h.new_content, h.reason)))
                                    ~ v_hold.pattern)));
    END LOOP;
    RETURN v_kept;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION purge_history(p_before timestamptz, p_limit int)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text;
    v_after uuid;
    v_looked uuid[];
    v_kept uuid[];
    v_count bigint;
    v_total bigint := 0;
BEGIN
    FOR v_project IN SELECT * FROM swept_projects(v_tenant, nullif(current_setting('app.project_id', true), '')) LOOP
        v_after := '00000000-0000-0000-0000-000000000000';
        WHILE v_total < p_limit LOOP
            v_looked := ARRAY(
                SELECT h.history_id FROM memory_history h
                WHERE h.tenant_id = v_tenant AND h.history_id > v_after AND h.history_id < first_id(p_before)
                  AND h.project_id = v_project AND h.created_at < p_before AND h.suppression = 0
                ORDER BY h.history_id LIMIT p_limit - v_total);
            EXIT WHEN cardinality(v_looked) = 0;
            v_after := v_looked[cardinality(v_looked)];
            v_kept := kept_notes(v_tenant, v_project, ARRAY(
                SELECT DISTINCT h.note_id FROM memory_history h
                WHERE h.tenant_id = v_tenant AND h.history_id = ANY (v_looked)));
            DELETE FROM memory_history h
            WHERE h.tenant_id = v_tenant AND h.history_id = ANY (v_looked) AND h.note_id <> ALL (v_kept);
            GET DIAGNOSTICS v_count = ROW_COUNT;
            v_total := v_total + v_count;
        END LOOP;
    END LOOP;
    RETURN v_total;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION purge_links(p_before timestamptz, p_limit int, OUT mentions bigint, OUT entities bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text;
    v_notes uuid[];
    v_entities uuid[];
    v_kept uuid[];
    v_count bigint;
BEGIN
    mentions := 0;
    entities := 0;
    FOR v_project IN SELECT * FROM swept_projects(v_tenant, nullif(current_setting('app.project_id', true), '')) LOOP
        EXIT WHEN mentions >= p_limit;
        v_notes := due_notes(v_tenant, v_project, 'links', p_before, p_limit);
        CONTINUE WHEN cardinality(v_notes) = 0;
        WITH pick AS (
            SELECT m.note_id, m.entity_id FROM note_entity_mentions m
            WHERE m.tenant_id = v_tenant AND m.note_id = ANY (v_notes)
            ORDER BY m.note_id, m.entity_id LIMIT p_limit - mentions
        ), gone AS (
            DELETE FROM note_entity_mentions m USING pick
            WHERE m.tenant_id = v_tenant AND m.note_id = pick.note_id AND m.entity_id = pick.entity_id
            RETURNING m.note_id, m.entity_id
        )
        -- Only those that came with or after the note: what stood before it was made by somebody on purpose.
        SELECT count(*), array_agg(DISTINCT g.entity_id) FILTER (WHERE e.created_at >= n.created_at)
        INTO v_count, v_entities
        FROM gone g
        JOIN memory_notes n ON n.tenant_id = v_tenant AND n.note_id = g.note_id
        JOIN graph_entities e ON e.tenant_id = v_tenant AND e.entity_id = g.entity_id;
        mentions := mentions + v_count;
        -- Whoever writes about one of them has it locked, and keeps it.
        v_entities := ARRAY(
            SELECT e.entity_id FROM graph_entities e
            WHERE e.tenant_id = v_tenant AND e.entity_id = ANY (v_entities)
            ORDER BY e.entity_id FOR UPDATE SKIP LOCKED);
        v_kept := referenced_entities(v_tenant, v_project, v_entities);
        DELETE FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.entity_id = ANY (v_entities) AND e.suppression = 0
          AND e.merged_into IS NULL AND e.erased_scopes IS NULL AND e.held_scopes IS NULL AND e.decoy_id IS NULL
          AND e.entity_id <> ALL (v_kept);
        GET DIAGNOSTICS v_count = ROW_COUNT;
        entities := entities + v_count;
    END LOOP;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION purge_notes(p_before timestamptz, p_limit int, OUT notes bigint, OUT documents bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text;
    v_notes uuid[];
    v_patterns text;
    v_last timestamptz;
    v_count bigint;
BEGIN
    notes := 0;
    documents := 0;
    FOR v_project IN SELECT * FROM swept_projects(v_tenant, nullif(current_setting('app.project_id', true), '')) LOOP
        IF notes < p_limit THEN
            v_notes := due_notes(v_tenant, v_project, 'notes', p_before, (p_limit - notes)::int);
            IF cardinality(v_notes) > 0 THEN
                DELETE FROM embedding_queue q
                WHERE q.tenant_id = v_tenant AND q.project_id = v_project
                  AND q.model_id IN (SELECT m.model_id FROM embedding_models m)
                  AND q.owner_kind = 'note' AND q.owner_id = ANY (v_notes);
                DELETE FROM graph_fact_supersessions x
                WHERE x.tenant_id = v_tenant AND x.note_id = ANY (v_notes) AND EXISTS (
                    SELECT FROM graph_fact_supersessions o
                    WHERE o.tenant_id = v_tenant AND o.from_fact_id = x.from_fact_id AND o.to_fact_id = x.to_fact_id
                      AND (o.note_id IS NULL
                           OR (o.note_id = ANY (v_notes) AND o.supersession_id < x.supersession_id)));
                UPDATE graph_fact_supersessions x SET note_id = NULL
                WHERE x.tenant_id = v_tenant AND x.note_id = ANY (v_notes);
                WITH gone AS (
                    DELETE FROM memory_notes n WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_notes)
                    RETURNING n.deleted_at
                )
                SELECT count(*), max(g.deleted_at) INTO v_count, v_last FROM gone g;
                notes := notes + v_count;
                UPDATE projects p
                SET settings = p.settings || jsonb_build_object('notes_complete_since', v_last)
                WHERE p.tenant_id = v_tenant AND p.project_id = v_project
                  AND coalesce((p.settings ->> 'notes_complete_since')::timestamptz, '-infinity') < v_last;
            END IF;
        END IF;
        CONTINUE WHEN documents >= p_limit;
        -- A document stays while one of its notes must, or its own words name somebody under a hold.
        SELECT string_agg(name_pattern(v_tenant, t.entity_id), '|') INTO v_patterns FROM tombstones t
        WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND t.legal_hold AND t.named
          AND NOT EXISTS (SELECT FROM tombstone_revocations r
                          WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id);
        WITH pick AS (
            SELECT d.document_id FROM documents d
            WHERE d.tenant_id = v_tenant AND d.project_id = v_project AND d.deleted_at < p_before
              AND d.suppression = 0
              AND (v_patterns IS NULL
                   OR normalize(lower(concat_ws(' ', d.title, d.author, d.source_url, array_to_string(d.tags, ' '))))
                      !~ v_patterns)
              AND NOT EXISTS (
                  SELECT FROM document_notes x
                  JOIN memory_notes n ON n.tenant_id = v_tenant AND n.note_id = x.note_id
                  WHERE x.tenant_id = v_tenant AND x.document_id = d.document_id
                    AND (x.suppression <> 0 OR n.suppression <> 0
                         OR cardinality(kept_notes(v_tenant, v_project, ARRAY[n.note_id])) > 0))
            ORDER BY d.deleted_at, d.document_id LIMIT p_limit - documents FOR UPDATE SKIP LOCKED
        )
        DELETE FROM documents d USING pick WHERE d.tenant_id = v_tenant AND d.document_id = pick.document_id;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        documents := documents + v_count;
    END LOOP;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION purge_records(p_what text, p_before timestamptz, p_limit int)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_count bigint;
BEGIN
    IF v_tenant IS NULL THEN
        RAISE EXCEPTION 'a purge needs a scope with a tenant' USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF p_what = 'finished_jobs' THEN
        WITH pick AS (
            SELECT j.job_id FROM jobs j
            WHERE j.tenant_id = v_tenant AND j.status IN ('completed', 'cancelled') AND j.finished_at < p_before
              AND (v_project IS NULL OR j.project_id = v_project)
            ORDER BY j.finished_at LIMIT p_limit FOR UPDATE SKIP LOCKED
        ) DELETE FROM jobs j USING pick WHERE j.tenant_id = v_tenant AND j.job_id = pick.job_id;
    ELSIF p_what = 'lost_jobs' THEN
        WITH pick AS (
            SELECT j.job_id FROM jobs j
            WHERE j.tenant_id = v_tenant AND j.status IN ('dead', 'failed') AND j.finished_at < p_before
              AND (v_project IS NULL OR j.project_id = v_project)
            ORDER BY j.finished_at LIMIT p_limit FOR UPDATE SKIP LOCKED
        ) DELETE FROM jobs j USING pick WHERE j.tenant_id = v_tenant AND j.job_id = pick.job_id;
    ELSIF p_what = 'calls' THEN
        WITH pick AS (
            SELECT c.call_id FROM llm_calls c
            WHERE c.tenant_id = v_tenant AND c.created_at < p_before AND (v_project IS NULL OR c.project_id = v_project)
            ORDER BY c.created_at LIMIT p_limit FOR UPDATE SKIP LOCKED
        ) DELETE FROM llm_calls c USING pick WHERE c.tenant_id = v_tenant AND c.call_id = pick.call_id;
    ELSIF p_what = 'repairs' THEN
        WITH pick AS (
            SELECT r.repair_id FROM repairs r
            WHERE r.tenant_id = v_tenant AND r.created_at < p_before AND (v_project IS NULL OR r.project_id = v_project)
            ORDER BY r.created_at LIMIT p_limit FOR UPDATE SKIP LOCKED
        ) DELETE FROM repairs r USING pick WHERE r.tenant_id = v_tenant AND r.repair_id = pick.repair_id;
    ELSE
        RAISE EXCEPTION 'nothing of this kind is purged: %', p_what;
    END IF;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION purge_vectors(p_before timestamptz, p_limit int)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_models smallint[] := ARRAY(SELECT m.model_id FROM embedding_models m);
    v_now timestamptz := clock_timestamp();
    v_project text;
    v_notes uuid[];
    v_taken int := 0;
    v_count bigint;
    v_total bigint := 0;
BEGIN
    FOR v_project IN SELECT * FROM swept_projects(v_tenant, nullif(current_setting('app.project_id', true), '')) LOOP
        EXIT WHEN v_taken >= p_limit;
        -- The place that those who store vectors hold too, before anything else.
        PERFORM FROM embedding_counts c WHERE c.tenant_id = v_tenant AND c.project_id = v_project
        ORDER BY c.model_id, c.view FOR UPDATE;
        v_notes := due_notes(v_tenant, v_project, 'vectors', p_before, p_limit - v_taken);
        CONTINUE WHEN cardinality(v_notes) = 0;
        v_taken := v_taken + cardinality(v_notes);
        DELETE FROM embedding_queue q
        WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = ANY (v_models)
          AND q.owner_kind = 'note' AND q.owner_id = ANY (v_notes);
        WITH gone AS (
            DELETE FROM embeddings e
            WHERE e.tenant_id = v_tenant AND e.model_id = ANY (v_models) AND e.view IN ('self', 'context')
              AND e.owner_kind = 'note' AND e.owner_id = ANY (v_notes)
            RETURNING e.model_id, e.view
        ), told AS (
            UPDATE embedding_counts c
            SET vectors = greatest(0, c.vectors - g.gone), notes = greatest(0, c.notes - g.gone), counted_at = v_now
            FROM (SELECT g.model_id, g.view, count(*) AS gone FROM gone g GROUP BY g.model_id, g.view) g
            WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.model_id = g.model_id AND c.view = g.view
            RETURNING c.model_id
        )
        SELECT count(*) INTO v_count FROM gone;
        v_total := v_total + v_count;
    END LOOP;
    RETURN v_total;
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
CREATE OR REPLACE FUNCTION record_llm_calls(p_tenant text, p_project text, p_job uuid, p_model text, p_calls json)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET synchronous_commit = off
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    WITH made AS (
        INSERT INTO llm_calls AS l (
            tenant_id, call_id, project_id, job_id, purpose, model, input_tokens, output_tokens, succeeded,
            duration_ms, created_at)
        SELECT p_tenant, c.call, p_project, p_job, c.purpose, p_model, c.input, c.output, c.succeeded, c.duration, v_now
        FROM json_to_recordset(p_calls)
            AS c(call uuid, purpose text, input int, output int, succeeded boolean, duration int)
        ON CONFLICT DO NOTHING
        RETURNING l.input_tokens, l.output_tokens, l.succeeded
    )
    INSERT INTO llm_usage AS u (tenant_id, project_id, day, model, calls, failures, input_tokens, output_tokens)
    SELECT p_tenant, p_project, (v_now AT TIME ZONE 'UTC')::date, p_model, count(*),
           count(*) FILTER (WHERE NOT m.succeeded), sum(m.input_tokens), sum(m.output_tokens)
    FROM made m HAVING count(*) > 0
    ON CONFLICT (tenant_id, project_id, day, model) DO UPDATE
    SET calls = u.calls + excluded.calls, failures = u.failures + excluded.failures,
        input_tokens = u.input_tokens + excluded.input_tokens, output_tokens = u.output_tokens + excluded.output_tokens;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION referenced_entities(p_tenant text, p_project text, p_entities uuid[])
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_key record;
    v_some uuid[];
    v_found uuid[];
BEGIN
    v_found := ARRAY(
        SELECT t.entity_id FROM tombstones t WHERE t.tenant_id = p_tenant AND t.entity_id = ANY (p_entities));
    FOR v_key IN
        SELECT c.conrelid::regclass AS name, a.attname AS referrer
        FROM pg_constraint c
        JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = ANY (c.conkey) AND a.attname <> 'tenant_id'
        WHERE c.contype = 'f' AND c.confrelid = 'public.graph_entities'::regclass
        ORDER BY c.conname
    LOOP
        EXECUTE format(
            'SELECT array_agg(DISTINCT x.%2$I) FROM %1$s x '
            'WHERE x.tenant_id = $1 AND x.project_id = $2 AND x.%2$I = ANY ($3)', v_key.name, v_key.referrer)
        INTO v_some USING p_tenant, p_project, p_entities;
        v_found := v_found || coalesce(v_some, '{}');
    END LOOP;
    RETURN v_found;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION release_leases(p_limit int)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_count bigint := 0;
    v_job record;
BEGIN
    FOR v_job IN WITH pick AS (
        SELECT j.job_id FROM jobs j
        WHERE j.tenant_id = v_tenant AND j.project_id = v_project AND j.status = 'leased'
          AND j.lease_expires_at < v_now
        ORDER BY j.lease_expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED)
    UPDATE jobs j
    SET status = CASE WHEN j.attempts >= j.max_attempts THEN 'dead' ELSE 'pending' END,
        finished_at = CASE WHEN j.attempts >= j.max_attempts THEN v_now END,
        available_at = v_now, lease_owner = NULL, lease_expires_at = NULL,
        last_error = 'lease_expired: the worker stopped answering'
    FROM pick WHERE j.tenant_id = v_tenant AND j.job_id = pick.job_id
    RETURNING j.job_id, j.status LOOP
        v_count := v_count + 1;
        IF v_job.status = 'dead' THEN
            PERFORM follow_job(v_tenant, v_job.job_id);
        END IF;
    END LOOP;
    RETURN v_count;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION requeue_dead(p_limit int)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_job uuid;
    v_count bigint := 0;
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RAISE EXCEPTION 'requeue_dead needs tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;
    FOR v_job IN SELECT * FROM find_revivable(v_tenant, v_project, p_limit) LOOP
        BEGIN
            UPDATE jobs j
            SET status = 'pending', attempts = 0, available_at = v_now, finished_at = NULL, started_at = NULL,
                result = coalesce(j.result, '{}') || jsonb_build_object('requeued_at', v_now)
            WHERE j.tenant_id = v_tenant AND j.job_id = v_job AND j.status = 'dead';
            IF FOUND THEN
                v_count := v_count + 1;
                PERFORM follow_job(v_tenant, v_job);
            END IF;
        EXCEPTION WHEN unique_violation THEN
            -- Somebody has just asked for the same work: it is open again without this one.
            NULL;
        END;
    END LOOP;
    RETURN v_count;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION schedule_cycles()
RETURNS TABLE (tenant_id text, job_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    INSERT INTO jobs AS j (tenant_id, job_id, project_id, kind, payload, dedupe_key, created_by, available_at,
                           created_at)
    SELECT p.tenant_id, i.job_id, p.project_id, 'maintenance_cycle', '{}', 'maintenance_cycle', 'schedule', v_now, v_now
    FROM projects p
    CROSS JOIN LATERAL (
        SELECT md5('maintenance_cycle ' || p.tenant_id || '/' || p.project_id)::uuid AS job_id,
               make_interval(secs => coalesce(
                   (p.settings #>> '{pipeline,maintenance_interval_ms}')::float8, 1800000) / 1000) AS pause) i
    WHERE (p.settings #>> '{pipeline,autonomous_enabled}')::boolean
      AND coalesce((p.settings #>> '{pipeline,autonomous_frozen}')::boolean, false) = false
      AND NOT EXISTS (
        SELECT FROM jobs d
        WHERE d.tenant_id = p.tenant_id AND d.job_id = i.job_id
          AND (d.status IN ('pending', 'leased') OR d.finished_at > v_now - i.pause))
    ON CONFLICT ON CONSTRAINT jobs_pkey DO UPDATE
    SET status = 'pending', attempts = 0, available_at = excluded.available_at, created_at = excluded.created_at,
        started_at = NULL, finished_at = NULL, last_error = NULL, result = NULL
    WHERE j.status NOT IN ('pending', 'leased')
    RETURNING j.tenant_id, j.job_id;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION schedule_retention(p_before timestamptz)
RETURNS TABLE (tenant_id text, job_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    INSERT INTO jobs AS j (tenant_id, job_id, kind, payload, dedupe_key, created_by, available_at, created_at)
    SELECT t.tenant_id, i.job_id, 'retention', '{}', 'retention', 'schedule', v_now, v_now
    FROM tenants t
    CROSS JOIN LATERAL (SELECT md5('retention ' || t.tenant_id)::uuid AS job_id) i
    WHERE t.created_at < p_before AND NOT EXISTS (
        SELECT FROM jobs d
        WHERE d.tenant_id = t.tenant_id AND d.job_id = i.job_id
          AND (d.status IN ('pending', 'leased')
               OR (d.finished_at >= p_before
                   AND (d.status <> 'completed' OR d.result ->> 'full' IS DISTINCT FROM 'true'))))
    ON CONFLICT ON CONSTRAINT jobs_pkey DO UPDATE
    SET status = 'pending', attempts = 0, available_at = excluded.available_at, created_at = excluded.created_at,
        started_at = NULL, finished_at = NULL, last_error = NULL, result = NULL
    WHERE j.status NOT IN ('pending', 'leased')
    RETURNING j.tenant_id, j.job_id;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION settle_documents(p_tenant text, p_documents uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
BEGIN
    UPDATE documents d SET suppression = l.level
    FROM (
        SELECT o.document_id,
               CASE WHEN bool_or(h.level = 1) THEN 1 WHEN bool_or(h.level = 2) THEN 2 ELSE 0 END::smallint AS level
        FROM documents o
        LEFT JOIN LATERAL (
            SELECT n.suppression AS level FROM document_notes x
            JOIN memory_notes n ON n.tenant_id = p_tenant AND n.note_id = x.note_id
            WHERE x.tenant_id = p_tenant AND x.document_id = o.document_id AND n.suppression > 0
            UNION ALL
            SELECT hidden_level(e.erased_scopes, e.held_scopes, o.scope) FROM document_entity_mentions m
            JOIN graph_entities e ON e.tenant_id = p_tenant AND e.entity_id = m.entity_id
            WHERE m.tenant_id = p_tenant AND m.document_id = o.document_id
        ) h ON true
        WHERE o.tenant_id = p_tenant AND o.document_id = ANY (p_documents)
        GROUP BY o.document_id
    ) l
    WHERE d.tenant_id = p_tenant AND d.document_id = l.document_id AND d.suppression <> l.level;
    UPDATE document_notes x SET suppression = stricter_level(d.suppression, n.suppression)
    FROM documents d, memory_notes n
    WHERE d.tenant_id = p_tenant AND d.document_id = ANY (p_documents)
      AND x.tenant_id = p_tenant AND x.document_id = d.document_id
      AND n.tenant_id = p_tenant AND n.note_id = x.note_id
      AND x.suppression <> stricter_level(d.suppression, n.suppression);
    UPDATE document_entity_mentions x SET suppression = d.suppression FROM documents d
    WHERE d.tenant_id = p_tenant AND d.document_id = ANY (p_documents)
      AND x.tenant_id = p_tenant AND x.document_id = d.document_id AND x.suppression <> d.suppression;
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
    FROM match_notes(v_terms.terms, v_idf, choose_terms(v_terms.terms, v_terms.documents, 200), v_terms.average, 1000,
                     60, NULL, p_scope) m
    WHERE m.note_id <> ALL (p_skipped);
    IF v_query IS NOT NULL THEN
        v_near := ARRAY(
            SELECT n.owner_id FROM near_units(
                p_tenant, p_project, 'note', p_model, p_dimensions, p_vector, 60, p_scope) n);
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
CREATE OR REPLACE FUNCTION spelled_bytes(p_bytes bytea)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN convert_from(p_bytes, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
    RETURN encode(p_bytes, 'escape');
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
CREATE OR REPLACE FUNCTION swept_projects(p_tenant text, p_project text)
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF p_tenant IS NULL THEN
        RAISE EXCEPTION 'a purge needs a scope with a tenant' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN QUERY
    SELECT p.project_id FROM projects p
    WHERE p.tenant_id = p_tenant AND (p_project IS NULL OR p.project_id = p_project)
      AND coalesce((p.settings #>> '{pipeline,mutations_frozen}')::boolean, false) = false
    ORDER BY p.project_id FOR NO KEY UPDATE SKIP LOCKED;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION target_stands(p_tenant text, p_payload jsonb)
RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_form text := '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$';
BEGIN
    IF p_payload ->> 'note_id' ~ v_form AND NOT EXISTS (
        SELECT FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = (p_payload ->> 'note_id')::uuid AND n.deleted_at IS NULL
          AND n.suppression = 0) THEN
        RETURN false;
    END IF;
    IF p_payload ->> 'document_id' ~ v_form AND NOT EXISTS (
        SELECT FROM documents d
        WHERE d.tenant_id = p_tenant AND d.document_id = (p_payload ->> 'document_id')::uuid AND d.deleted_at IS NULL
          AND d.suppression = 0) THEN
        RETURN false;
    END IF;
    RETURN NOT (p_payload ->> 'entity_id' ~ v_form) IS TRUE OR EXISTS (
        SELECT FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND e.entity_id = (p_payload ->> 'entity_id')::uuid AND e.suppression = 0);
END
$$;
""",
    r"""
CREATE OR REPLACE FUNCTION erase_entity(p_tombstone uuid, p_job uuid)
RETURNS TABLE (refused text, report jsonb)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_tombstone tombstones;
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_whole boolean;
    v_entities uuid[] := '{}';
    v_pattern text;
    v_facts uuid[];
    v_notes uuid[];
    v_ids uuid[];
    v_cards uuid[];
    v_sourced uuid[];
    v_documents uuid[];
    v_values text;
    v_count_values bigint := 0;
    v_counts jsonb := '{}';
    v_left jsonb;
    v_count bigint;
    v_now timestamptz;
    v_gone bytea := convert_to(
        '{"code":"not_found","message":"What this answered is no longer there.","details":{}}', 'UTF8');
    v_table text;
BEGIN
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR NO KEY UPDATE;
    SELECT t.* INTO v_tombstone FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND t.tombstone_id = p_tombstone;
    IF NOT FOUND OR NOT v_tombstone.erase THEN
        RETURN QUERY SELECT 'tombstone_not_found', NULL::jsonb;
        RETURN;
    END IF;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND (e.entity_id = v_tombstone.entity_id OR e.merged_into = v_tombstone.entity_id)
    ORDER BY e.entity_id FOR UPDATE;
    SELECT t.* INTO v_tombstone FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.tombstone_id = p_tombstone FOR UPDATE;
    IF v_tombstone.erased_at IS NOT NULL THEN
        RETURN QUERY SELECT 'already_erased', NULL::jsonb;
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM tombstone_revocations r
               WHERE r.tenant_id = v_tenant AND r.tombstone_id = p_tombstone) THEN
        RETURN QUERY SELECT 'tombstone_already_revoked', NULL::jsonb;
        RETURN;
    END IF;
    v_now := clock_timestamp();
    IF v_tombstone.erase_at > v_now THEN
        RETURN QUERY SELECT 'not_yet', jsonb_build_object('erase_at', v_tombstone.erase_at);
        RETURN;
    END IF;
    v_whole := v_tombstone.scopes IS NULL;

    -- 1. What it is about: what was written since the tombstone belongs to it too.
    IF v_tombstone.named THEN
        PERFORM link_mentions(v_tenant, v_project, v_tombstone.entity_id, v_tombstone.scopes);
    END IF;
    PERFORM link_holds(v_tenant, v_project);
    SELECT d.facts, d.notes INTO v_facts, v_notes
    FROM find_doomed(v_tenant, v_project, v_tombstone.entity_id, v_tombstone.scopes) d;
    IF find_hold(v_tenant, v_project, v_tombstone.entity_id, v_tombstone.scopes, v_facts, v_notes) IS NOT NULL THEN
        RETURN QUERY SELECT 'legal_hold', NULL::jsonb;
        RETURN;
    END IF;
    IF v_whole THEN
        v_pattern := name_pattern(v_tenant, v_tombstone.entity_id);
        v_entities := ARRAY(
            SELECT e.entity_id FROM graph_entities e
            WHERE e.tenant_id = v_tenant
              AND (e.entity_id = v_tombstone.entity_id OR e.merged_into = v_tombstone.entity_id));
    END IF;
    v_ids := v_facts || v_notes || v_entities || ARRAY(
        SELECT e.decoy_id FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.entity_id = ANY (v_entities) AND e.decoy_id IS NOT NULL);
    -- Documents that name it, or of which a part goes. What a hold keeps of others stays as it is.
    v_documents := ARRAY(
        SELECT d.document_id FROM documents d
        WHERE d.tenant_id = v_tenant AND d.project_id = v_project
          AND (EXISTS (SELECT FROM document_entity_mentions m
                       WHERE m.tenant_id = v_tenant AND m.document_id = d.document_id
                         AND m.entity_id = v_tombstone.entity_id)
               OR EXISTS (SELECT FROM document_notes x
                          WHERE x.tenant_id = v_tenant AND x.document_id = d.document_id
                            AND x.note_id = ANY (v_notes)))
          AND (v_whole OR d.scope = ANY (v_tombstone.scopes))
          AND NOT EXISTS (SELECT FROM document_entity_mentions m
                          JOIN graph_entities e ON e.tenant_id = v_tenant AND e.entity_id = m.entity_id
                          WHERE m.tenant_id = v_tenant AND m.document_id = d.document_id
                            AND d.scope = ANY (e.held_scopes)));
    -- Values that tell something by themselves; the newest, as many as can be searched for.
    SELECT string_agg(v.quoted, '|'), count(*) INTO v_values, v_count_values
    FROM (
        SELECT regexp_replace(normalize(lower(f.object_value)), '([][\\.^$*+?(){}|-])', '\\\1', 'g') AS quoted
        FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts) AND length(f.object_value) BETWEEN 8 AND 100
          AND v_tombstone.entity_id IN (f.subject_entity_id, f.object_entity_id)
        ORDER BY f.created_at DESC LIMIT 50
    ) v;

    -- 2. What was kept of it elsewhere: by id anywhere, by name in its own project.
    UPDATE idempotency_keys k SET status = 404, body = v_gone
    WHERE k.tenant_id = v_tenant AND NOT k.sealed AND k.body IS NOT NULL
      AND (names_any(encode(k.body, 'escape'), v_ids || v_documents)
           OR (v_tombstone.named AND right(k.path, length(v_project) + 1) = ' ' || v_project
               AND says(convert_from(k.body, 'UTF8')::jsonb, v_pattern)));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('idempotency_keys', v_count);
    -- A note that stays although its job goes waits no longer.
    UPDATE memory_notes n SET extraction_status = 'none'
    WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.extraction_status = 'pending'
      AND EXISTS (
        SELECT FROM jobs j
        WHERE j.tenant_id = v_tenant AND j.kind = 'extract' AND j.status IN ('pending', 'leased')
          AND j.dedupe_key = n.note_id::text
          AND (names_any(concat_ws(' ', j.payload, j.result, j.last_error), v_ids)
               OR (v_tombstone.named AND normalize(lower(j.last_error)) ~ v_pattern)));
    UPDATE jobs j
    SET payload = '{}', last_error = NULL, result = NULL,
        dedupe_key = CASE WHEN NOT names_any(j.dedupe_key, v_ids) THEN j.dedupe_key END,
        -- What a worker holds of it in its hands must not be written after this.
        status = CASE WHEN j.status = 'pending' OR (j.status = 'leased' AND j.kind IN ('extract', 'graph_link'))
                      THEN 'cancelled' ELSE j.status END,
        lease_owner = CASE WHEN j.kind NOT IN ('extract', 'graph_link') THEN j.lease_owner END,
        lease_expires_at = CASE WHEN j.kind NOT IN ('extract', 'graph_link') THEN j.lease_expires_at END,
        finished_at = CASE WHEN j.status = 'pending' OR (j.status = 'leased' AND j.kind IN ('extract', 'graph_link'))
                           THEN v_now ELSE j.finished_at END
    WHERE j.tenant_id = v_tenant AND j.job_id <> p_job
      AND (names_any(concat_ws(' ', j.payload, j.result, j.last_error), v_ids)
           OR (v_tombstone.named AND j.project_id = v_project
               AND (says(j.payload, v_pattern) OR says(j.result, v_pattern)
                    OR normalize(lower(j.last_error)) ~ v_pattern))
           -- What is still to be done is not stopped by a mere value.
           OR (j.status NOT IN ('pending', 'leased') AND j.project_id = v_project
               AND (says(j.payload, v_values) OR says(j.result, v_values)
                    OR normalize(lower(j.last_error)) ~ v_values)));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('jobs', v_count);
    IF v_tombstone.named AND v_whole THEN
        UPDATE fact_retractions r SET reason = NULL
        WHERE r.tenant_id = v_tenant AND r.project_id = v_project AND normalize(lower(r.reason)) ~ v_pattern
          AND NOT is_held(v_tenant, r.fact_id);
        UPDATE fact_conflicts c SET resolution_note = NULL
        WHERE c.tenant_id = v_tenant AND c.project_id = v_project
          AND normalize(lower(c.resolution_note)) ~ v_pattern AND NOT is_held(v_tenant, c.fact_a);
        WITH changed AS (
            UPDATE graph_facts f SET source = NULL, updated_at = v_now
            WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND normalize(lower(f.source)) ~ v_pattern
              AND NOT is_held(v_tenant, f.fact_id)
            RETURNING f.fact_id
        ) SELECT array_agg(c.fact_id) INTO v_sourced FROM changed c;
        UPDATE tombstones t SET reason = ''
        WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND normalize(lower(t.reason)) ~ v_pattern;
        UPDATE tombstone_revocations r SET reason = ''
        WHERE r.tenant_id = v_tenant AND r.project_id = v_project AND normalize(lower(r.reason)) ~ v_pattern;
        DELETE FROM sources s
        WHERE s.tenant_id = v_tenant AND s.project_id = v_project AND normalize(lower(s.source)) ~ v_pattern;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_counts := v_counts || jsonb_build_object('sources', v_count);
    END IF;

    -- Of documents their traces alone stay: how many chunks they had, and when.
    UPDATE documents d
    SET title = NULL, source_url = NULL, error = NULL, raw_content = NULL, author = NULL, tags = '{}',
        content_hash = NULL, content_type = NULL,
        status = CASE WHEN d.status = 'done' THEN 'done' ELSE 'failed' END, updated_at = v_now
    WHERE d.tenant_id = v_tenant AND d.document_id = ANY (v_documents);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('documents', v_count);
    DELETE FROM memory_reviews r
    WHERE r.tenant_id = v_tenant
      AND (r.note_id = ANY (v_notes) OR r.target_note_id = ANY (v_notes)
           OR (v_tombstone.named AND r.project_id = v_project AND r.suppression <> 2
               AND (v_whole OR r.scope = ANY (v_tombstone.scopes))
               AND normalize(lower(concat_ws(' ', r.content, r.reason, r.decision_reason))) ~ v_pattern));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('memory_reviews', v_count);
    -- What was once proposed about notes that stay.
    UPDATE memory_history h SET proposal = NULL
    WHERE h.tenant_id = v_tenant AND h.proposal IS NOT NULL AND h.note_id <> ALL (v_notes)
      AND (names_any(h.proposal::text, v_ids)
           OR (h.project_id = v_project AND h.suppression <> 2
               AND ((v_tombstone.named AND says(h.proposal, v_pattern)) OR says(h.proposal, v_values))));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('proposals', v_count);

    DELETE FROM recall_traces r
    WHERE r.tenant_id = v_tenant AND r.project_id = v_project
      AND (names_any(r.results::text, v_ids) OR names_any(r.request::text, v_ids)
           OR (v_tombstone.named AND says(r.request, v_pattern)) OR says(r.request, v_values));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('recall_traces', v_count);
    -- Terms that were counted are counted anew, without it.
    DELETE FROM lexical_frequencies l WHERE l.tenant_id = v_tenant AND l.project_id = v_project;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('lexical_frequencies', v_count);
    UPDATE lexical_statistics s SET counted_at = '-infinity'
    WHERE s.tenant_id = v_tenant AND s.project_id = v_project;

    -- 3. The rows themselves, with all that hangs on them; each kind is counted before it goes.
    FOREACH v_table IN ARRAY ARRAY['graph_fact_evidence', 'fact_closings', 'fact_confidences', 'fact_retractions',
                                   'fact_derivations', 'graph_fact_mentions'] LOOP
        EXECUTE format('SELECT count(*) FROM %I x WHERE x.tenant_id = $1 AND x.fact_id = ANY ($2)', v_table)
        INTO v_count USING v_tenant, v_facts;
        v_counts := v_counts || jsonb_build_object(v_table, v_count);
    END LOOP;
    SELECT count(*) INTO v_count FROM fact_conflicts x
    WHERE x.tenant_id = v_tenant AND (x.fact_a = ANY (v_facts) OR x.fact_b = ANY (v_facts));
    v_counts := v_counts || jsonb_build_object('fact_conflicts', v_count);
    SELECT count(*) INTO v_count FROM graph_fact_supersessions x
    WHERE x.tenant_id = v_tenant AND (x.from_fact_id = ANY (v_facts) OR x.to_fact_id = ANY (v_facts));
    v_counts := v_counts || jsonb_build_object('graph_fact_supersessions', v_count);
    SELECT count(*) INTO v_count FROM entity_edges x WHERE x.tenant_id = v_tenant AND x.edge_id = ANY (v_facts);
    v_counts := v_counts || jsonb_build_object('entity_edges', v_count);
    v_cards := ARRAY(
        SELECT c.card_id FROM memory_cards c
        WHERE c.tenant_id = v_tenant AND c.entity_id = v_tombstone.entity_id
          AND (v_whole OR c.scope = ANY (v_tombstone.scopes))
        -- And those of others, which told what goes or by whom it was said.
        UNION SELECT unnest(cards_telling(v_tenant, v_project, v_facts || v_sourced)));
    DELETE FROM embedding_queue q
    WHERE q.tenant_id = v_tenant AND q.owner_id = ANY (v_facts || v_notes || v_cards);
    DELETE FROM embeddings x
    WHERE x.tenant_id = v_tenant AND x.model_id IN (SELECT m.model_id FROM embedding_models m) AND x.view = 'self'
      AND x.owner_kind IN ('note', 'fact', 'card') AND x.owner_id = ANY (v_facts || v_notes || v_cards);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('embeddings', v_count);
    DELETE FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.card_id = ANY (v_cards);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('memory_cards', v_count);
    -- How a conflict of others ended stays; by what it was decided goes.
    UPDATE fact_conflicts x SET winner = NULL WHERE x.tenant_id = v_tenant AND x.winner = ANY (v_facts);
    DELETE FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('graph_facts', v_count);

    -- A link between facts that stay loses only its note.
    DELETE FROM graph_fact_supersessions x
    WHERE x.tenant_id = v_tenant AND x.note_id = ANY (v_notes) AND EXISTS (
        SELECT FROM graph_fact_supersessions o
        WHERE o.tenant_id = v_tenant AND o.from_fact_id = x.from_fact_id AND o.to_fact_id = x.to_fact_id
          AND (o.note_id IS NULL OR (o.note_id = ANY (v_notes) AND o.supersession_id < x.supersession_id)));
    UPDATE graph_fact_supersessions x SET note_id = NULL
    WHERE x.tenant_id = v_tenant AND x.note_id = ANY (v_notes);
    SELECT count(*) INTO v_count FROM memory_history x WHERE x.tenant_id = v_tenant AND x.note_id = ANY (v_notes);
    v_counts := v_counts || jsonb_build_object('memory_history', v_count);
    SELECT count(*) INTO v_count FROM note_entity_mentions x
    WHERE x.tenant_id = v_tenant AND (x.note_id = ANY (v_notes) OR x.entity_id = ANY (v_entities));
    v_counts := v_counts || jsonb_build_object('note_entity_mentions', v_count);
    -- Those of other scopes stay, and forget where they come from.
    UPDATE memory_notes n SET derived_from = NULL
    WHERE n.tenant_id = v_tenant AND n.derived_from = ANY (v_notes) AND n.note_id <> ALL (v_notes);
    DELETE FROM memory_notes n WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_notes);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('memory_notes', v_count);
    IF v_whole THEN
        DELETE FROM graph_entity_aliases a WHERE a.tenant_id = v_tenant AND a.entity_id = ANY (v_entities);
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_counts := v_counts || jsonb_build_object('graph_entity_aliases', v_count);
        DELETE FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.merged_into = v_tombstone.entity_id;
        DELETE FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.entity_id = v_tombstone.entity_id;
        PERFORM settle_documents(v_tenant, v_documents);
        v_counts := v_counts || jsonb_build_object('graph_entities', cardinality(v_entities));
        -- All that was said of it when it was hidden, now or earlier.
        UPDATE tombstone_revocations r SET reason = '' FROM tombstones t
        WHERE t.tenant_id = v_tenant AND t.entity_id = v_tombstone.entity_id
          AND r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id;
        UPDATE tombstones t SET entity = NULL, reason = ''
        WHERE t.tenant_id = v_tenant AND t.entity_id = v_tombstone.entity_id;
        UPDATE tombstones t SET erased_at = v_now
        WHERE t.tenant_id = v_tenant AND t.entity_id = v_tombstone.entity_id AND NOT EXISTS (
            SELECT FROM tombstone_revocations r WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id);
    ELSE
        UPDATE tombstones t SET erased_at = v_now WHERE t.tenant_id = v_tenant AND t.tombstone_id = p_tombstone;
        DELETE FROM document_entity_mentions m
        WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id AND m.document_id = ANY (v_documents);
        PERFORM settle_entity(v_tenant, v_project, v_agent, v_tombstone.entity_id);
        PERFORM settle_documents(v_tenant, v_documents);
    END IF;

    -- 4. Proof: every column of every table.
    SELECT coalesce(jsonb_agg(jsonb_build_object('kind', r.kind, 'table', r.table_name, 'column', r.column_name,
                                                 'rows', r.hits)), '[]')
    INTO v_left FROM find_residue(v_tenant, v_ids, v_pattern, v_values) r;
    IF v_left @> '[{"kind": "id"}]' THEN
        RAISE EXCEPTION 'erasure left rows behind: %', v_left;
    END IF;
    PERFORM record_event('erasure_completed', v_tombstone.key_id, jsonb_build_object(
        'tombstone_id', p_tombstone, 'entity_id', v_tombstone.entity_id, 'facts', cardinality(v_facts),
        'notes', cardinality(v_notes)));
    RETURN QUERY SELECT NULL::text, jsonb_build_object(
        'entity_id', v_tombstone.entity_id, 'scope', to_jsonb(v_tombstone.scopes), 'counts', v_counts,
        'found', v_left, 'names', (v_pattern IS NOT NULL)::int, 'values', v_count_values,
        'requested_at', v_tombstone.created_at, 'completed_at', v_now);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION find_doomed(
    p_tenant text, p_project text, p_entity uuid, p_scopes text[], OUT facts uuid[], OUT notes uuid[])
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
BEGIN
    facts := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.subject_entity_id = p_entity
          AND (p_scopes IS NULL OR f.scope = ANY (p_scopes))
        UNION
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.object_entity_id = p_entity
          AND (p_scopes IS NULL OR f.scope = ANY (p_scopes))
        UNION
        SELECT f.fact_id FROM graph_fact_mentions m
        JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_id = m.fact_id
        WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity AND (p_scopes IS NULL OR f.scope = ANY (p_scopes)));
    notes := ARRAY(
        WITH RECURSIVE doomed AS (
        SELECT n.note_id FROM note_entity_mentions m
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.note_id = m.note_id
        WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
        UNION
        SELECT n.note_id FROM graph_facts f
        JOIN graph_fact_evidence v ON v.tenant_id = p_tenant AND v.fact_id = f.fact_id
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.note_id = v.note_id
        WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (facts) AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
          AND (f.subject_entity_id = p_entity OR f.object_entity_id = p_entity)
        UNION
        SELECT n.note_id FROM doomed d
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.derived_from = d.note_id
        WHERE p_scopes IS NULL OR n.scope = ANY (p_scopes)
        ) SELECT d.note_id FROM doomed d);
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
CREATE OR REPLACE FUNCTION issue_tombstone(
    p_id uuid, p_entity json, p_scopes text[], p_reason text, p_hold boolean, p_erase boolean, p_erase_at timestamptz,
    p_named boolean, p_key text, p_job uuid)
RETURNS TABLE (refused text, entity_id uuid, canonical text, candidates uuid[], other uuid, created_at timestamptz,
               facts_hidden bigint, notes_hidden bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_meant record;
    v_entity graph_entities;
    v_other uuid;
    v_facts uuid[];
    v_notes uuid[];
    v_documents uuid[];
    v_now timestamptz;
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RAISE EXCEPTION 'issue_tombstone needs tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;
    -- One tombstone at a time in a project: each computes from all that there are.
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR NO KEY UPDATE;
    SELECT r.entity_id, r.candidates INTO v_meant FROM resolve_entities(v_tenant, v_project, p_entity) r;
    IF v_meant.entity_id IS NULL THEN
        RETURN QUERY SELECT CASE WHEN v_meant.candidates IS NULL THEN 'entity_not_found' ELSE 'entity_ambiguous' END,
                            NULL::uuid, NULL::text, v_meant.candidates, NULL::uuid, NULL::timestamptz, NULL::bigint,
                            NULL::bigint;
        RETURN;
    END IF;
    -- Those who write about it finish first; those who come later see that it is hidden.
    SELECT e.* INTO v_entity FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id = v_meant.entity_id FOR UPDATE;
    IF NOT FOUND OR v_entity.merged_into IS NOT NULL THEN
        RAISE EXCEPTION 'the entity was merged or erased meanwhile' USING ERRCODE = '40001';
    END IF;
    SELECT t.tombstone_id INTO v_other FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.entity_id = v_entity.entity_id AND t.legal_hold = p_hold
      AND t.erased_at IS NULL
      -- What is only hidden can be erased without showing it again.
      AND (t.erase OR NOT p_erase)
      AND (t.scopes IS NULL OR p_scopes IS NULL OR t.scopes && p_scopes)
      AND NOT EXISTS (SELECT FROM tombstone_revocations r
                      WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id)
    ORDER BY t.created_at LIMIT 1;
    IF FOUND THEN
        RETURN QUERY SELECT 'tombstone_already_exists', v_entity.entity_id, v_entity.canonical, NULL::uuid[], v_other,
                            NULL::timestamptz, NULL::bigint, NULL::bigint;
        RETURN;
    END IF;
    IF p_named THEN
        PERFORM link_mentions(v_tenant, v_project, v_entity.entity_id, p_scopes);
    END IF;
    IF p_erase THEN
        PERFORM link_holds(v_tenant, v_project);
        SELECT d.facts, d.notes INTO v_facts, v_notes
        FROM find_doomed(v_tenant, v_project, v_entity.entity_id, p_scopes) d;
        v_other := find_hold(v_tenant, v_project, v_entity.entity_id, p_scopes, v_facts, v_notes);
        IF v_other IS NOT NULL THEN
            RETURN QUERY SELECT 'erasure_blocked', v_entity.entity_id, v_entity.canonical, NULL::uuid[], v_other,
                                NULL::timestamptz, NULL::bigint, NULL::bigint;
            RETURN;
        END IF;
    END IF;
    v_now := clock_timestamp();
    INSERT INTO tombstones (
        tenant_id, tombstone_id, project_id, entity_id, entity, scopes, reason, created_by, key_id, created_at,
        legal_hold, erase, erase_at, named)
    VALUES (v_tenant, p_id, v_project, v_entity.entity_id, v_entity.canonical, p_scopes, p_reason, v_agent, p_key,
            v_now, p_hold, p_erase, p_erase_at, p_named);
    PERFORM settle_entity(v_tenant, v_project, v_agent, v_entity.entity_id);
    SELECT d.facts, d.notes INTO v_facts, v_notes
    FROM find_doomed(v_tenant, v_project, v_entity.entity_id, p_scopes) d;
    v_documents := ARRAY(
        SELECT m.document_id FROM document_entity_mentions m
        WHERE m.tenant_id = v_tenant AND m.entity_id = v_entity.entity_id
        UNION
        SELECT x.document_id FROM document_notes x WHERE x.tenant_id = v_tenant AND x.note_id = ANY (v_notes));
    -- Answers that were kept for those who ask again must not show it either.
    DELETE FROM idempotency_keys k
    WHERE k.tenant_id = v_tenant AND NOT k.sealed AND k.path ~ '^/v1/(facts|entities|notes|conflicts|documents)'
      AND names_any(encode(k.body, 'escape'), v_notes || v_facts || v_documents || v_entity.entity_id);
    PERFORM record_event('tombstone_issued', p_key, jsonb_build_object(
        'tombstone_id', p_id, 'entity_id', v_entity.entity_id, 'legal_hold', p_hold, 'erase', p_erase));
    IF p_erase THEN
        -- Of the whole tenant: agents of the project must not see that there is such a job.
        INSERT INTO jobs (tenant_id, job_id, agent_id, kind, payload, dedupe_key, priority, created_by, available_at,
                          created_at)
        VALUES (v_tenant, p_job, v_agent, 'erase',
                jsonb_build_object('tombstone_id', p_id, 'project_id', v_project), p_id::text, 5, p_key, p_erase_at,
                v_now);
    END IF;
    IF p_hold THEN
        PERFORM record_event('rtbf_legal_hold_issued', p_key, jsonb_build_object(
            'tombstone_id', p_id, 'entity_id', v_entity.entity_id));
    END IF;
    RETURN QUERY SELECT NULL::text, v_entity.entity_id, v_entity.canonical, NULL::uuid[], NULL::uuid, v_now,
                        cardinality(v_facts)::bigint, cardinality(v_notes)::bigint;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION link_mentions(p_tenant text, p_project text, p_entity uuid, p_scopes text[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_pattern text := name_pattern(p_tenant, p_entity);
    v_now timestamptz := clock_timestamp();
BEGIN
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, by_name)
    SELECT p_tenant, p_project, n.note_id, p_entity, v_now, true
    FROM memory_notes n
    WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
      AND (normalize(lower(concat_ws(' ', n.content, n.author, n.thread_id, array_to_string(n.tags, ' '))))
               ~ v_pattern
           OR EXISTS (SELECT FROM memory_history h
                      WHERE h.tenant_id = p_tenant AND h.note_id = n.note_id
                        AND normalize(lower(concat_ws(' ', h.old_content, h.new_content, h.reason)))
                            ~ v_pattern))
    ON CONFLICT DO NOTHING;
    WITH RECURSIVE derived AS (
        SELECT n.note_id FROM note_entity_mentions m
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.derived_from = m.note_id
        WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity
          AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
        UNION
        SELECT n.note_id FROM derived d
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.derived_from = d.note_id
        WHERE p_scopes IS NULL OR n.scope = ANY (p_scopes)
    )
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, by_name)
    SELECT p_tenant, p_project, d.note_id, p_entity, v_now, true FROM derived d
    ON CONFLICT DO NOTHING;
    INSERT INTO document_entity_mentions (tenant_id, project_id, document_id, entity_id, created_at)
    SELECT p_tenant, p_project, d.document_id, p_entity, v_now
    FROM documents d
    WHERE d.tenant_id = p_tenant AND d.project_id = p_project AND (p_scopes IS NULL OR d.scope = ANY (p_scopes))
      AND (normalize(lower(concat_ws(' ', d.title, d.source_url, d.author, d.error, array_to_string(d.tags, ' '))))
               ~ v_pattern
           -- In addresses the words of a name are joined by something.
           OR normalize(lower(regexp_replace(d.source_url, '%20|[-_+./=]', ' ', 'g'))) ~ v_pattern
           OR normalize(lower(spelled_bytes(d.raw_content))) ~ v_pattern)
    ON CONFLICT DO NOTHING;
    INSERT INTO graph_fact_mentions (tenant_id, project_id, fact_id, entity_id, created_at)
    SELECT p_tenant, p_project, f.fact_id, p_entity, v_now
    FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND (p_scopes IS NULL OR f.scope = ANY (p_scopes))
      AND f.object_value IS NOT NULL AND f.subject_entity_id <> p_entity
      AND normalize(lower(f.object_value)) ~ v_pattern
    ON CONFLICT DO NOTHING;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION merge_entities(p_from uuid, p_into uuid, p_key text)
RETURNS TABLE (refused text, facts_moved bigint, facts_folded bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_names int;
    v_predicates uuid[];
    v_words uuid[];
    v_renamed uuid[];
    v_now timestamptz;
    v_moved bigint;
    v_folded bigint;
BEGIN
    -- Beside other merges, but never beside a tombstone.
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR SHARE;
    SELECT count(*) INTO v_names FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.entity_id IN (p_from, p_into) AND e.suppression = 0;
    IF p_from = p_into OR v_names < 2 THEN
        RETURN QUERY
        SELECT CASE WHEN p_from = p_into THEN 'same_entity' ELSE 'entity_not_found' END, 0::bigint, 0::bigint;
        RETURN;
    END IF;
    -- Those who write by these predicates finish first; then nobody can write about either entity.
    v_predicates := ARRAY(
        SELECT DISTINCT f.predicate_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project
          AND (f.subject_entity_id IN (p_from, p_into) OR f.object_entity_id IN (p_from, p_into)));
    PERFORM FROM graph_predicates p
    WHERE p.tenant_id = v_tenant AND p.predicate_id = ANY (v_predicates)
    ORDER BY p.predicate_id FOR KEY SHARE;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id IN (p_from, p_into) ORDER BY e.entity_id FOR UPDATE;
    IF EXISTS (SELECT FROM graph_entities e
               WHERE e.tenant_id = v_tenant AND e.entity_id IN (p_from, p_into) AND e.suppression > 0) THEN
        RETURN QUERY SELECT 'entity_not_found', 0::bigint, 0::bigint;
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM graph_entities e
               WHERE e.tenant_id = v_tenant AND e.entity_id IN (p_from, p_into) AND e.merged_into IS NOT NULL) THEN
        RETURN QUERY SELECT 'entity_merged', 0::bigint, 0::bigint;
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM graph_facts f
               WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.predicate_id <> ALL (v_predicates)
                 AND (f.subject_entity_id IN (p_from, p_into) OR f.object_entity_id IN (p_from, p_into))) THEN
        RAISE EXCEPTION 'a predicate came to it meanwhile' USING ERRCODE = '40001';
    END IF;
    -- The subjects of facts that point to either, so that their timelines hold still.
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id IN (
        SELECT f.subject_entity_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.object_entity_id IN (p_from, p_into))
    ORDER BY e.entity_id FOR NO KEY UPDATE;
    v_now := clock_timestamp();
    v_folded := fold_beliefs(v_tenant, v_project, v_agent, ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.retracted_at IS NULL AND f.suppression = 0
          AND (f.subject_entity_id IN (p_from, p_into) OR f.object_entity_id IN (p_from, p_into))),
        p_from, p_into, v_now);

    v_words := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = f.predicate_id AND p.status = 'pending'
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.object_value IS NOT NULL
          AND f.retracted_at IS NULL AND f.suppression = 0
          AND (f.subject_entity_id = p_from OR (f.subject_entity_id = p_into AND f.closed_at = v_now)));

    -- Of what is hidden no trace, not even in a number.
    SELECT count(*) INTO v_moved FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.suppression = 0
      AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from);
    v_renamed := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project
          AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from));
    UPDATE graph_facts f
    SET subject_entity_id = CASE f.subject_entity_id WHEN p_from THEN p_into ELSE f.subject_entity_id END,
        object_entity_id = CASE f.object_entity_id WHEN p_from THEN p_into ELSE f.object_entity_id END,
        object_hash = CASE f.object_entity_id WHEN p_from THEN sha256(uuid_send(p_into)) ELSE f.object_hash END,
        updated_at = v_now
    WHERE f.tenant_id = v_tenant AND f.project_id = v_project
      AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from);
    -- Values in words that stood on two entities, or were lengthened, may contradict others now.
    PERFORM note_conflicts(v_tenant, v_project, v_words, array_fill(v_now, ARRAY[cardinality(v_words)]));
    UPDATE entity_edges x
    SET subject_entity_id = CASE x.subject_entity_id WHEN p_from THEN p_into ELSE x.subject_entity_id END,
        object_entity_id = CASE x.object_entity_id WHEN p_from THEN p_into ELSE x.object_entity_id END
    WHERE x.tenant_id = v_tenant AND x.project_id = v_project
      AND (x.subject_entity_id = p_from OR x.object_entity_id = p_from);
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, suppression, by_name)
    SELECT m.tenant_id, m.project_id, m.note_id, p_into, m.created_at, m.suppression, m.by_name
    FROM note_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from
    ON CONFLICT DO NOTHING;
    DELETE FROM note_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;

    DELETE FROM graph_entity_aliases a
    WHERE a.tenant_id = v_tenant AND a.entity_id = p_from AND (
        EXISTS (SELECT FROM graph_entity_aliases b
                WHERE b.tenant_id = v_tenant AND b.entity_id = p_into AND b.alias_norm = a.alias_norm)
        OR EXISTS (SELECT FROM graph_entities e
                   WHERE e.tenant_id = v_tenant AND e.entity_id = p_into AND e.canonical_norm = a.alias_norm));
    UPDATE graph_entity_aliases a SET entity_id = p_into WHERE a.tenant_id = v_tenant AND a.entity_id = p_from;
    INSERT INTO graph_entity_aliases (tenant_id, alias_id, project_id, entity_id, alias, alias_norm, created_at)
    SELECT v_tenant, make_id(), v_project, p_into, e.canonical, e.canonical_norm, v_now
    FROM graph_entities e WHERE e.tenant_id = v_tenant AND e.entity_id = p_from
    ON CONFLICT (tenant_id, entity_id, alias_norm) DO NOTHING;
    UPDATE graph_entities e SET merged_into = p_into, updated_at = v_now
    WHERE e.tenant_id = v_tenant AND (e.entity_id = p_from OR e.merged_into = p_from);
    UPDATE graph_entities e SET kind = coalesce(e.kind, o.kind), updated_at = v_now
    FROM graph_entities o
    WHERE e.tenant_id = v_tenant AND e.entity_id = p_into AND o.tenant_id = v_tenant AND o.entity_id = p_from;

    -- They are found by the name that stays, and written up under it.
    UPDATE graph_facts f
    SET terms = fact_terms(project_language(v_tenant, v_project), s.canonical, p.canonical,
                           coalesce(o.canonical, f.object_value))
    FROM graph_facts r
    JOIN graph_entities s ON s.tenant_id = v_tenant AND s.entity_id = r.subject_entity_id
    JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = r.predicate_id
    LEFT JOIN graph_entities o ON o.tenant_id = v_tenant AND o.entity_id = r.object_entity_id
    WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_renamed) AND r.tenant_id = v_tenant AND r.fact_id = f.fact_id;
    PERFORM queue_units(v_tenant, v_project, 'fact', v_renamed);
    PERFORM drop_cards(v_tenant, ARRAY(
        SELECT c.card_id FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.entity_id IN (p_from, p_into)));

    UPDATE graph_fact_mentions m SET entity_id = p_into
    WHERE m.tenant_id = v_tenant AND m.entity_id = p_from AND NOT EXISTS (
        SELECT FROM graph_fact_mentions o
        WHERE o.tenant_id = v_tenant AND o.fact_id = m.fact_id AND o.entity_id = p_into);
    DELETE FROM graph_fact_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;
    INSERT INTO document_entity_mentions (tenant_id, project_id, document_id, entity_id, created_at, suppression)
    SELECT m.tenant_id, m.project_id, m.document_id, p_into, m.created_at, m.suppression
    FROM document_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from
    ON CONFLICT DO NOTHING;
    DELETE FROM document_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;
    -- A tombstone in some scopes goes along: what it hides of one it now hides of both.
    IF EXISTS (SELECT FROM tombstones t WHERE t.tenant_id = v_tenant AND t.entity_id IN (p_from, p_into)) THEN
        UPDATE tombstones t SET entity_id = p_into WHERE t.tenant_id = v_tenant AND t.entity_id = p_from;
        PERFORM settle_entity(v_tenant, v_project, v_agent, p_into);
    END IF;
    -- Facts that were moved may be hidden by what they point to; so are the lines this merge wrote about them.
    PERFORM settle_facts(v_tenant, v_project, v_agent, ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.suppression > 0
          AND (f.subject_entity_id = p_into OR f.object_entity_id = p_into)));

    PERFORM record_event('admin_action', p_key, jsonb_build_object(
        'action', 'entity_merge', 'from', p_from, 'into', p_into, 'facts_moved', v_moved, 'facts_folded', v_folded));
    RETURN QUERY SELECT NULL::text, v_moved, v_folded;
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
    """
CREATE OR REPLACE FUNCTION revoke_tombstone(p_tombstone uuid, p_id uuid, p_reason text, p_key text)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_tombstone tombstones;
    v_facts uuid[];
    v_notes uuid[];
    v_documents uuid[];
    v_now timestamptz;
BEGIN
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR NO KEY UPDATE;
    SELECT t.* INTO v_tombstone FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND t.tombstone_id = p_tombstone;
    IF NOT FOUND THEN
        RETURN 'tombstone_not_found';
    END IF;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id = v_tombstone.entity_id FOR UPDATE;
    SELECT t.* INTO v_tombstone FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.tombstone_id = p_tombstone FOR UPDATE;
    IF v_tombstone.erased_at IS NOT NULL THEN
        RETURN 'tombstone_erased';
    END IF;
    IF EXISTS (SELECT FROM tombstone_revocations r
               WHERE r.tenant_id = v_tenant AND r.tombstone_id = p_tombstone) THEN
        RETURN 'tombstone_already_revoked';
    END IF;
    v_now := clock_timestamp();
    INSERT INTO tombstone_revocations (tenant_id, revocation_id, project_id, tombstone_id, reason, revoked_by, key_id,
                                       revoked_at)
    VALUES (v_tenant, p_id, v_project, p_tombstone, p_reason, v_agent, p_key, v_now);
    -- Which notes, facts and documents name it was found out for tombstones alone.
    IF NOT EXISTS (SELECT FROM tombstones t
                   WHERE t.tenant_id = v_tenant AND t.entity_id = v_tombstone.entity_id AND t.named
                     AND t.erased_at IS NULL
                     AND NOT EXISTS (SELECT FROM tombstone_revocations r
                                     WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id)) THEN
        WITH gone AS (
            DELETE FROM note_entity_mentions m
            WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id AND m.by_name
            RETURNING m.note_id
        ) SELECT array_agg(g.note_id) INTO v_notes FROM gone g;
        WITH gone AS (
            DELETE FROM graph_fact_mentions m
            WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id
            RETURNING m.fact_id
        ) SELECT array_agg(g.fact_id) INTO v_facts FROM gone g;
        WITH gone AS (
            DELETE FROM document_entity_mentions m
            WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id
            RETURNING m.document_id
        ) SELECT array_agg(g.document_id) INTO v_documents FROM gone g;
    END IF;
    PERFORM settle_entity(v_tenant, v_project, v_agent, v_tombstone.entity_id);
    PERFORM settle_facts(v_tenant, v_project, v_agent, v_facts);
    PERFORM settle_notes(v_tenant, v_agent, v_notes);
    PERFORM settle_documents(v_tenant, v_documents);
    PERFORM record_event('tombstone_revoked', p_key, jsonb_build_object(
        'tombstone_id', p_tombstone, 'entity_id', v_tombstone.entity_id));
    UPDATE jobs j SET status = 'cancelled', finished_at = v_now
    WHERE j.tenant_id = v_tenant AND j.kind = 'erase' AND j.status = 'pending' AND j.dedupe_key = p_tombstone::text;
    IF v_tombstone.legal_hold THEN
        UPDATE jobs j
        SET status = 'pending', attempts = 0, available_at = v_now, finished_at = NULL, last_error = NULL
        FROM tombstones t
        WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND t.erase AND t.erased_at IS NULL
          AND NOT EXISTS (SELECT FROM tombstone_revocations r
                          WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id)
          AND j.tenant_id = v_tenant AND j.kind = 'erase' AND j.dedupe_key = t.tombstone_id::text
          AND j.status = 'failed';
    END IF;
    RETURN NULL;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION schedule_maintenance(p_windows_before bigint)
RETURNS TABLE (tenant_id text, job_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    INSERT INTO public.jobs AS j (tenant_id, job_id, kind, payload, dedupe_key, created_by, available_at, created_at)
    SELECT t.tenant_id, gen_random_uuid(), 'maintenance', '{}', 'maintenance', 'schedule', v_now, v_now
    FROM public.tenants t
    WHERE EXISTS (SELECT FROM public.idempotency_keys i WHERE i.tenant_id = t.tenant_id AND i.expires_at <= v_now)
       OR EXISTS (SELECT FROM public.rate_windows w WHERE w.tenant_id = t.tenant_id
                  AND coalesce(w.slots[cardinality(w.slots)], 0) < p_windows_before)
       OR EXISTS (SELECT FROM public.recall_traces r
                  JOIN public.projects p ON p.tenant_id = t.tenant_id AND p.project_id = r.project_id
                  WHERE r.tenant_id = t.tenant_id AND r.created_at < v_now
                        - make_interval(days => coalesce((p.settings ->> 'trace_days')::int, 30)))
    ON CONFLICT DO NOTHING
    RETURNING j.tenant_id, j.job_id;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION settle_entity(p_tenant text, p_project text, p_agent text, p_entity uuid)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_all text[] := ARRAY['agent_private', 'project_shared', 'org_shared', 'public'];
    v_erased text[];
    v_held text[];
    v_level smallint;
    v_decoy uuid := make_id();
BEGIN
    SELECT array_agg(DISTINCT u.scope) FILTER (WHERE NOT t.legal_hold),
           array_agg(DISTINCT u.scope) FILTER (WHERE t.legal_hold)
    INTO v_erased, v_held
    FROM tombstones t CROSS JOIN LATERAL unnest(coalesce(t.scopes, v_all)) u(scope)
    WHERE t.tenant_id = p_tenant AND t.entity_id = p_entity AND t.erased_at IS NULL AND NOT EXISTS (
        SELECT FROM tombstone_revocations r WHERE r.tenant_id = p_tenant AND r.tombstone_id = t.tombstone_id);
    -- While something of it can still be seen, so must its name.
    v_level := CASE WHEN v_erased @> v_all THEN 1
                    WHEN coalesce(v_erased, '{}') || coalesce(v_held, '{}') @> v_all THEN 2 ELSE 0 END;
    UPDATE graph_entities e
    SET erased_scopes = v_erased, held_scopes = v_held, suppression = v_level,
        decoy_id = CASE WHEN v_level > 0 THEN coalesce(e.decoy_id, v_decoy) END
    WHERE e.tenant_id = p_tenant AND e.entity_id IN (
        SELECT p_entity UNION ALL
        SELECT m.entity_id FROM graph_entities m WHERE m.tenant_id = p_tenant AND m.merged_into = p_entity);
    UPDATE graph_entity_aliases a SET suppression = v_level
    WHERE a.tenant_id = p_tenant AND a.entity_id = p_entity AND a.suppression <> v_level;
    PERFORM settle_facts(p_tenant, p_project, p_agent, ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.subject_entity_id = p_entity
        UNION
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.object_entity_id = p_entity
        UNION
        SELECT m.fact_id FROM graph_fact_mentions m WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity));
    PERFORM settle_notes(p_tenant, p_agent, ARRAY(
        SELECT m.note_id FROM note_entity_mentions m WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity));
    PERFORM settle_documents(p_tenant, ARRAY(
        SELECT m.document_id FROM document_entity_mentions m
        WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity));
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION settle_notes(p_tenant text, p_agent text, p_notes uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_change record;
    v_twin record;
    v_goes record;
    v_stays uuid;
BEGIN
    FOR v_change IN
        SELECT n.*, l.level
        FROM memory_notes n
        CROSS JOIN LATERAL (
            SELECT CASE WHEN bool_or(h.level = 1) THEN 1 WHEN bool_or(h.level = 2) THEN 2 ELSE 0 END::smallint AS level
            FROM note_entity_mentions m
            JOIN graph_entities e ON e.tenant_id = p_tenant AND e.entity_id = m.entity_id
            CROSS JOIN LATERAL (SELECT hidden_level(e.erased_scopes, e.held_scopes, n.scope) AS level) h
            WHERE m.tenant_id = p_tenant AND m.note_id = n.note_id
        ) l
        WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes) AND n.suppression <> l.level
        ORDER BY n.created_at, n.note_id
    LOOP
        IF v_change.level = 0 AND v_change.deleted_at IS NULL THEN
            SELECT n.* INTO v_twin FROM memory_notes n
            WHERE n.tenant_id = p_tenant AND n.project_id = v_change.project_id AND n.scope = v_change.scope
              AND n.owner_key = v_change.owner_key AND n.thread_id IS NOT DISTINCT FROM v_change.thread_id
              AND n.position IS NOT DISTINCT FROM v_change.position AND n.content_hash = v_change.content_hash
              AND n.deleted_at IS NULL AND n.suppression = 0;
            IF FOUND THEN
                IF v_twin.created_at < v_change.created_at THEN
                    v_goes := v_change;
                ELSE
                    v_goes := v_twin;
                END IF;
                v_stays := CASE v_goes.note_id WHEN v_twin.note_id THEN v_change.note_id ELSE v_twin.note_id END;
                INSERT INTO graph_fact_evidence (
                    tenant_id, project_id, evidence_id, fact_id, note_id, created_at, suppression)
                SELECT p_tenant, v.project_id, make_id(), v.fact_id, v_stays, v.created_at, v.suppression
                FROM graph_fact_evidence v WHERE v.tenant_id = p_tenant AND v.note_id = v_goes.note_id
                ON CONFLICT (tenant_id, fact_id, note_id) DO NOTHING;
                UPDATE memory_notes n SET deleted_at = v_now, updated_at = v_now, version = n.version + 1
                WHERE n.tenant_id = p_tenant AND n.note_id = v_goes.note_id;
                INSERT INTO memory_history (
                    tenant_id, history_id, project_id, note_id, agent_id, scope, garden_id, event, version, changed_by,
                    reason, old_content, created_at)
                VALUES (p_tenant, make_id(), v_goes.project_id, v_goes.note_id, v_goes.agent_id, v_goes.scope,
                        v_goes.garden_id, 'merged', v_goes.version + 1, p_agent, 'an older note says the same',
                        v_goes.content, v_now);
            END IF;
        END IF;
        UPDATE memory_notes n SET suppression = v_change.level
        WHERE n.tenant_id = p_tenant AND n.note_id = v_change.note_id;
        IF v_change.level = 0 THEN
            PERFORM queue_units(p_tenant, v_change.project_id, 'note', ARRAY[v_change.note_id]);
        ELSE
            DELETE FROM embedding_queue q
            WHERE q.tenant_id = p_tenant AND q.project_id = v_change.project_id
              AND q.model_id IN (SELECT m.model_id FROM embedding_models m) AND q.owner_kind = 'note'
              AND q.owner_id = v_change.note_id;
        END IF;
    END LOOP;
    UPDATE memory_history x SET suppression = n.suppression FROM memory_notes n
    WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes)
      AND x.tenant_id = p_tenant AND x.note_id = n.note_id AND x.suppression <> n.suppression;
    -- What is hidden has no vector: to mark it would cost the index as much as to make it anew.
    DELETE FROM embeddings x USING memory_notes n
    WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes) AND n.suppression > 0 AND x.tenant_id = p_tenant
      AND x.model_id IN (SELECT m.model_id FROM embedding_models m) AND x.view = 'self' AND x.owner_kind = 'note'
      AND x.owner_id = n.note_id;
    UPDATE note_entity_mentions x
    SET suppression = stricter_level(n.suppression, hidden_level(e.erased_scopes, e.held_scopes, n.scope))
    FROM memory_notes n, graph_entities e
    WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes)
      AND x.tenant_id = p_tenant AND x.note_id = n.note_id
      AND e.tenant_id = p_tenant AND e.entity_id = x.entity_id
      AND x.suppression <> stricter_level(n.suppression, hidden_level(e.erased_scopes, e.held_scopes, n.scope));
    UPDATE graph_fact_evidence x SET suppression = stricter_level(f.suppression, n.suppression)
    FROM memory_notes n, graph_facts f
    WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes)
      AND x.tenant_id = p_tenant AND x.note_id = n.note_id
      AND f.tenant_id = p_tenant AND f.fact_id = x.fact_id
      AND x.suppression <> stricter_level(f.suppression, n.suppression);
    UPDATE memory_reviews x SET suppression = stricter_level(a.suppression, b.suppression)
    FROM memory_notes a, memory_notes b
    WHERE x.tenant_id = p_tenant AND (x.note_id = ANY (p_notes) OR x.target_note_id = ANY (p_notes))
      AND a.tenant_id = p_tenant AND a.note_id = x.note_id
      AND b.tenant_id = p_tenant AND b.note_id = x.target_note_id
      AND x.suppression <> stricter_level(a.suppression, b.suppression);
    PERFORM settle_documents(p_tenant, ARRAY(
        SELECT DISTINCT x.document_id FROM document_notes x
        WHERE x.tenant_id = p_tenant AND x.note_id = ANY (p_notes)));
END
$$;
""",
)

# And as they were.
OLD_FUNCTIONS: tuple[str, ...] = (
    r"""
CREATE OR REPLACE FUNCTION erase_entity(p_tombstone uuid, p_job uuid)
RETURNS TABLE (refused text, report jsonb)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_tombstone tombstones;
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_whole boolean;
    v_entities uuid[] := '{}';
    v_pattern text;
    v_facts uuid[];
    v_notes uuid[];
    v_ids uuid[];
    v_cards uuid[];
    v_sourced uuid[];
    v_values text;
    v_count_values bigint := 0;
    v_counts jsonb := '{}';
    v_left jsonb;
    v_count bigint;
    v_now timestamptz;
    v_gone bytea := convert_to(
        '{"code":"not_found","message":"What this answered is no longer there.","details":{}}', 'UTF8');
    v_table text;
BEGIN
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR NO KEY UPDATE;
    SELECT t.* INTO v_tombstone FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND t.tombstone_id = p_tombstone;
    IF NOT FOUND OR NOT v_tombstone.erase THEN
        RETURN QUERY SELECT 'tombstone_not_found', NULL::jsonb;
        RETURN;
    END IF;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND (e.entity_id = v_tombstone.entity_id OR e.merged_into = v_tombstone.entity_id)
    ORDER BY e.entity_id FOR UPDATE;
    SELECT t.* INTO v_tombstone FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.tombstone_id = p_tombstone FOR UPDATE;
    IF v_tombstone.erased_at IS NOT NULL THEN
        RETURN QUERY SELECT 'already_erased', NULL::jsonb;
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM tombstone_revocations r
               WHERE r.tenant_id = v_tenant AND r.tombstone_id = p_tombstone) THEN
        RETURN QUERY SELECT 'tombstone_already_revoked', NULL::jsonb;
        RETURN;
    END IF;
    v_now := clock_timestamp();
    IF v_tombstone.erase_at > v_now THEN
        RETURN QUERY SELECT 'not_yet', jsonb_build_object('erase_at', v_tombstone.erase_at);
        RETURN;
    END IF;
    v_whole := v_tombstone.scopes IS NULL;

    -- 1. What it is about: what was written since the tombstone belongs to it too.
    IF v_tombstone.named THEN
        PERFORM link_mentions(v_tenant, v_project, v_tombstone.entity_id, v_tombstone.scopes);
    END IF;
    PERFORM link_holds(v_tenant, v_project);
    SELECT d.facts, d.notes INTO v_facts, v_notes
    FROM find_doomed(v_tenant, v_project, v_tombstone.entity_id, v_tombstone.scopes) d;
    IF find_hold(v_tenant, v_project, v_tombstone.entity_id, v_tombstone.scopes, v_facts, v_notes) IS NOT NULL THEN
        RETURN QUERY SELECT 'legal_hold', NULL::jsonb;
        RETURN;
    END IF;
    IF v_whole THEN
        v_pattern := name_pattern(v_tenant, v_tombstone.entity_id);
        v_entities := ARRAY(
            SELECT e.entity_id FROM graph_entities e
            WHERE e.tenant_id = v_tenant
              AND (e.entity_id = v_tombstone.entity_id OR e.merged_into = v_tombstone.entity_id));
    END IF;
    v_ids := v_facts || v_notes || v_entities || ARRAY(
        SELECT e.decoy_id FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.entity_id = ANY (v_entities) AND e.decoy_id IS NOT NULL);
    -- Values that tell something by themselves; the newest, as many as can be searched for.
    SELECT string_agg(v.quoted, '|'), count(*) INTO v_values, v_count_values
    FROM (
        SELECT regexp_replace(normalize(lower(f.object_value)), '([][\\.^$*+?(){}|-])', '\\\1', 'g') AS quoted
        FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts) AND length(f.object_value) BETWEEN 8 AND 100
          AND v_tombstone.entity_id IN (f.subject_entity_id, f.object_entity_id)
        ORDER BY f.created_at DESC LIMIT 50
    ) v;

    -- 2. What was kept of it elsewhere: by id anywhere, by name in its own project.
    UPDATE idempotency_keys k SET status = 404, body = v_gone
    WHERE k.tenant_id = v_tenant AND NOT k.sealed AND k.body IS NOT NULL
      AND (names_any(encode(k.body, 'escape'), v_ids)
           OR (v_tombstone.named AND right(k.path, length(v_project) + 1) = ' ' || v_project
               AND says(convert_from(k.body, 'UTF8')::jsonb, v_pattern)));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('idempotency_keys', v_count);
    UPDATE jobs j
    SET payload = '{}', last_error = NULL,
        dedupe_key = CASE WHEN NOT names_any(j.dedupe_key, v_ids) THEN j.dedupe_key END,
        status = CASE WHEN j.status = 'pending' THEN 'cancelled' ELSE j.status END,
        finished_at = CASE WHEN j.status = 'pending' THEN v_now ELSE j.finished_at END
    WHERE j.tenant_id = v_tenant AND j.job_id <> p_job
      AND (names_any(j.payload::text || coalesce(j.last_error, ''), v_ids)
           OR (v_tombstone.named AND j.project_id = v_project
               AND (says(j.payload, v_pattern) OR normalize(lower(j.last_error)) ~ v_pattern))
           -- What is still to be done is not stopped by a mere value.
           OR (j.status NOT IN ('pending', 'leased') AND j.project_id = v_project
               AND (says(j.payload, v_values) OR normalize(lower(j.last_error)) ~ v_values)));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('jobs', v_count);
    IF v_tombstone.named AND v_whole THEN
        UPDATE fact_retractions r SET reason = NULL
        WHERE r.tenant_id = v_tenant AND r.project_id = v_project AND normalize(lower(r.reason)) ~ v_pattern
          AND NOT is_held(v_tenant, r.fact_id);
        UPDATE fact_conflicts c SET resolution_note = NULL
        WHERE c.tenant_id = v_tenant AND c.project_id = v_project
          AND normalize(lower(c.resolution_note)) ~ v_pattern AND NOT is_held(v_tenant, c.fact_a);
        WITH changed AS (
            UPDATE graph_facts f SET source = NULL, updated_at = v_now
            WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND normalize(lower(f.source)) ~ v_pattern
              AND NOT is_held(v_tenant, f.fact_id)
            RETURNING f.fact_id
        ) SELECT array_agg(c.fact_id) INTO v_sourced FROM changed c;
        UPDATE tombstones t SET reason = ''
        WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND normalize(lower(t.reason)) ~ v_pattern;
        UPDATE tombstone_revocations r SET reason = ''
        WHERE r.tenant_id = v_tenant AND r.project_id = v_project AND normalize(lower(r.reason)) ~ v_pattern;
        DELETE FROM sources s
        WHERE s.tenant_id = v_tenant AND s.project_id = v_project AND normalize(lower(s.source)) ~ v_pattern;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_counts := v_counts || jsonb_build_object('sources', v_count);
    END IF;

    DELETE FROM recall_traces r
    WHERE r.tenant_id = v_tenant AND r.project_id = v_project
      AND (names_any(r.results::text, v_ids) OR names_any(r.request::text, v_ids)
           OR (v_tombstone.named AND says(r.request, v_pattern)) OR says(r.request, v_values));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('recall_traces', v_count);
    -- Terms that were counted are counted anew, without it.
    DELETE FROM lexical_frequencies l WHERE l.tenant_id = v_tenant AND l.project_id = v_project;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('lexical_frequencies', v_count);
    UPDATE lexical_statistics s SET counted_at = '-infinity'
    WHERE s.tenant_id = v_tenant AND s.project_id = v_project;

    -- 3. The rows themselves, with all that hangs on them; each kind is counted before it goes.
    FOREACH v_table IN ARRAY ARRAY['graph_fact_evidence', 'fact_closings', 'fact_confidences', 'fact_retractions',
                                   'fact_derivations', 'graph_fact_mentions'] LOOP
        EXECUTE format('SELECT count(*) FROM %I x WHERE x.tenant_id = $1 AND x.fact_id = ANY ($2)', v_table)
        INTO v_count USING v_tenant, v_facts;
        v_counts := v_counts || jsonb_build_object(v_table, v_count);
    END LOOP;
    SELECT count(*) INTO v_count FROM fact_conflicts x
    WHERE x.tenant_id = v_tenant AND (x.fact_a = ANY (v_facts) OR x.fact_b = ANY (v_facts));
    v_counts := v_counts || jsonb_build_object('fact_conflicts', v_count);
    SELECT count(*) INTO v_count FROM graph_fact_supersessions x
    WHERE x.tenant_id = v_tenant AND (x.from_fact_id = ANY (v_facts) OR x.to_fact_id = ANY (v_facts));
    v_counts := v_counts || jsonb_build_object('graph_fact_supersessions', v_count);
    SELECT count(*) INTO v_count FROM entity_edges x WHERE x.tenant_id = v_tenant AND x.edge_id = ANY (v_facts);
    v_counts := v_counts || jsonb_build_object('entity_edges', v_count);
    v_cards := ARRAY(
        SELECT c.card_id FROM memory_cards c
        WHERE c.tenant_id = v_tenant AND c.entity_id = v_tombstone.entity_id
          AND (v_whole OR c.scope = ANY (v_tombstone.scopes))
        -- And those of others, which told what goes or by whom it was said.
        UNION SELECT unnest(cards_telling(v_tenant, v_project, v_facts || v_sourced)));
    DELETE FROM embedding_queue q
    WHERE q.tenant_id = v_tenant AND q.owner_id = ANY (v_facts || v_notes || v_cards);
    DELETE FROM embeddings x
    WHERE x.tenant_id = v_tenant AND x.model_id IN (SELECT m.model_id FROM embedding_models m) AND x.view = 'self'
      AND x.owner_kind IN ('note', 'fact', 'card') AND x.owner_id = ANY (v_facts || v_notes || v_cards);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('embeddings', v_count);
    DELETE FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.card_id = ANY (v_cards);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('memory_cards', v_count);
    -- How a conflict of others ended stays; by what it was decided goes.
    UPDATE fact_conflicts x SET winner = NULL WHERE x.tenant_id = v_tenant AND x.winner = ANY (v_facts);
    DELETE FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('graph_facts', v_count);

    -- A link between facts that stay loses only its note.
    DELETE FROM graph_fact_supersessions x
    WHERE x.tenant_id = v_tenant AND x.note_id = ANY (v_notes) AND EXISTS (
        SELECT FROM graph_fact_supersessions o
        WHERE o.tenant_id = v_tenant AND o.from_fact_id = x.from_fact_id AND o.to_fact_id = x.to_fact_id
          AND (o.note_id IS NULL OR (o.note_id = ANY (v_notes) AND o.supersession_id < x.supersession_id)));
    UPDATE graph_fact_supersessions x SET note_id = NULL
    WHERE x.tenant_id = v_tenant AND x.note_id = ANY (v_notes);
    SELECT count(*) INTO v_count FROM memory_history x WHERE x.tenant_id = v_tenant AND x.note_id = ANY (v_notes);
    v_counts := v_counts || jsonb_build_object('memory_history', v_count);
    SELECT count(*) INTO v_count FROM note_entity_mentions x
    WHERE x.tenant_id = v_tenant AND (x.note_id = ANY (v_notes) OR x.entity_id = ANY (v_entities));
    v_counts := v_counts || jsonb_build_object('note_entity_mentions', v_count);
    DELETE FROM memory_notes n WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_notes);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('memory_notes', v_count);
    IF v_whole THEN
        DELETE FROM graph_entity_aliases a WHERE a.tenant_id = v_tenant AND a.entity_id = ANY (v_entities);
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_counts := v_counts || jsonb_build_object('graph_entity_aliases', v_count);
        DELETE FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.merged_into = v_tombstone.entity_id;
        DELETE FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.entity_id = v_tombstone.entity_id;
        v_counts := v_counts || jsonb_build_object('graph_entities', cardinality(v_entities));
        -- All that was said of it when it was hidden, now or earlier.
        UPDATE tombstone_revocations r SET reason = '' FROM tombstones t
        WHERE t.tenant_id = v_tenant AND t.entity_id = v_tombstone.entity_id
          AND r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id;
        UPDATE tombstones t SET entity = NULL, reason = ''
        WHERE t.tenant_id = v_tenant AND t.entity_id = v_tombstone.entity_id;
        UPDATE tombstones t SET erased_at = v_now
        WHERE t.tenant_id = v_tenant AND t.entity_id = v_tombstone.entity_id AND NOT EXISTS (
            SELECT FROM tombstone_revocations r WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id);
    ELSE
        UPDATE tombstones t SET erased_at = v_now WHERE t.tenant_id = v_tenant AND t.tombstone_id = p_tombstone;
        PERFORM settle_entity(v_tenant, v_project, v_agent, v_tombstone.entity_id);
    END IF;

    -- 4. Proof: every column of every table.
    SELECT coalesce(jsonb_agg(jsonb_build_object('kind', r.kind, 'table', r.table_name, 'column', r.column_name,
                                                 'rows', r.hits)), '[]')
    INTO v_left FROM find_residue(v_tenant, v_ids, v_pattern, v_values) r;
    IF v_left @> '[{"kind": "id"}]' THEN
        RAISE EXCEPTION 'erasure left rows behind: %', v_left;
    END IF;
    PERFORM record_event('erasure_completed', v_tombstone.key_id, jsonb_build_object(
        'tombstone_id', p_tombstone, 'entity_id', v_tombstone.entity_id, 'facts', cardinality(v_facts),
        'notes', cardinality(v_notes)));
    RETURN QUERY SELECT NULL::text, jsonb_build_object(
        'entity_id', v_tombstone.entity_id, 'scope', to_jsonb(v_tombstone.scopes), 'counts', v_counts,
        'found', v_left, 'names', (v_pattern IS NOT NULL)::int, 'values', v_count_values,
        'requested_at', v_tombstone.created_at, 'completed_at', v_now);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION find_doomed(
    p_tenant text, p_project text, p_entity uuid, p_scopes text[], OUT facts uuid[], OUT notes uuid[])
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
BEGIN
    facts := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.subject_entity_id = p_entity
          AND (p_scopes IS NULL OR f.scope = ANY (p_scopes))
        UNION
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.object_entity_id = p_entity
          AND (p_scopes IS NULL OR f.scope = ANY (p_scopes))
        UNION
        SELECT f.fact_id FROM graph_fact_mentions m
        JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_id = m.fact_id
        WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity AND (p_scopes IS NULL OR f.scope = ANY (p_scopes)));
    notes := ARRAY(
        SELECT n.note_id FROM note_entity_mentions m
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.note_id = m.note_id
        WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
        UNION
        SELECT n.note_id FROM graph_facts f
        JOIN graph_fact_evidence v ON v.tenant_id = p_tenant AND v.fact_id = f.fact_id
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.note_id = v.note_id
        WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (facts) AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
          AND (f.subject_entity_id = p_entity OR f.object_entity_id = p_entity));
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
    RETURN FOUND;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION issue_tombstone(
    p_id uuid, p_entity json, p_scopes text[], p_reason text, p_hold boolean, p_erase boolean, p_erase_at timestamptz,
    p_named boolean, p_key text, p_job uuid)
RETURNS TABLE (refused text, entity_id uuid, canonical text, candidates uuid[], other uuid, created_at timestamptz,
               facts_hidden bigint, notes_hidden bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_meant record;
    v_entity graph_entities;
    v_other uuid;
    v_facts uuid[];
    v_notes uuid[];
    v_now timestamptz;
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RAISE EXCEPTION 'issue_tombstone needs tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;
    -- One tombstone at a time in a project: each computes from all that there are.
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR NO KEY UPDATE;
    SELECT r.entity_id, r.candidates INTO v_meant FROM resolve_entities(v_tenant, v_project, p_entity) r;
    IF v_meant.entity_id IS NULL THEN
        RETURN QUERY SELECT CASE WHEN v_meant.candidates IS NULL THEN 'entity_not_found' ELSE 'entity_ambiguous' END,
                            NULL::uuid, NULL::text, v_meant.candidates, NULL::uuid, NULL::timestamptz, NULL::bigint,
                            NULL::bigint;
        RETURN;
    END IF;
    -- Those who write about it finish first; those who come later see that it is hidden.
    SELECT e.* INTO v_entity FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id = v_meant.entity_id FOR UPDATE;
    IF NOT FOUND OR v_entity.merged_into IS NOT NULL THEN
        RAISE EXCEPTION 'the entity was merged or erased meanwhile' USING ERRCODE = '40001';
    END IF;
    SELECT t.tombstone_id INTO v_other FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.entity_id = v_entity.entity_id AND t.legal_hold = p_hold
      AND t.erased_at IS NULL
      -- What is only hidden can be erased without showing it again.
      AND (t.erase OR NOT p_erase)
      AND (t.scopes IS NULL OR p_scopes IS NULL OR t.scopes && p_scopes)
      AND NOT EXISTS (SELECT FROM tombstone_revocations r
                      WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id)
    ORDER BY t.created_at LIMIT 1;
    IF FOUND THEN
        RETURN QUERY SELECT 'tombstone_already_exists', v_entity.entity_id, v_entity.canonical, NULL::uuid[], v_other,
                            NULL::timestamptz, NULL::bigint, NULL::bigint;
        RETURN;
    END IF;
    IF p_named THEN
        PERFORM link_mentions(v_tenant, v_project, v_entity.entity_id, p_scopes);
    END IF;
    IF p_erase THEN
        PERFORM link_holds(v_tenant, v_project);
        SELECT d.facts, d.notes INTO v_facts, v_notes
        FROM find_doomed(v_tenant, v_project, v_entity.entity_id, p_scopes) d;
        v_other := find_hold(v_tenant, v_project, v_entity.entity_id, p_scopes, v_facts, v_notes);
        IF v_other IS NOT NULL THEN
            RETURN QUERY SELECT 'erasure_blocked', v_entity.entity_id, v_entity.canonical, NULL::uuid[], v_other,
                                NULL::timestamptz, NULL::bigint, NULL::bigint;
            RETURN;
        END IF;
    END IF;
    v_now := clock_timestamp();
    INSERT INTO tombstones (
        tenant_id, tombstone_id, project_id, entity_id, entity, scopes, reason, created_by, key_id, created_at,
        legal_hold, erase, erase_at, named)
    VALUES (v_tenant, p_id, v_project, v_entity.entity_id, v_entity.canonical, p_scopes, p_reason, v_agent, p_key,
            v_now, p_hold, p_erase, p_erase_at, p_named);
    PERFORM settle_entity(v_tenant, v_project, v_agent, v_entity.entity_id);
    SELECT d.facts, d.notes INTO v_facts, v_notes
    FROM find_doomed(v_tenant, v_project, v_entity.entity_id, p_scopes) d;
    -- Answers that were kept for those who ask again must not show it either.
    DELETE FROM idempotency_keys k
    WHERE k.tenant_id = v_tenant AND NOT k.sealed AND k.path ~ '^/v1/(facts|entities|notes|conflicts)'
      AND names_any(encode(k.body, 'escape'), v_notes || v_facts || v_entity.entity_id);
    PERFORM record_event('tombstone_issued', p_key, jsonb_build_object(
        'tombstone_id', p_id, 'entity_id', v_entity.entity_id, 'legal_hold', p_hold, 'erase', p_erase));
    IF p_erase THEN
        -- Of the whole tenant: agents of the project must not see that there is such a job.
        INSERT INTO jobs (tenant_id, job_id, agent_id, kind, payload, dedupe_key, priority, created_by, available_at,
                          created_at)
        VALUES (v_tenant, p_job, v_agent, 'erase',
                jsonb_build_object('tombstone_id', p_id, 'project_id', v_project), p_id::text, 5, p_key, p_erase_at,
                v_now);
    END IF;
    IF p_hold THEN
        PERFORM record_event('rtbf_legal_hold_issued', p_key, jsonb_build_object(
            'tombstone_id', p_id, 'entity_id', v_entity.entity_id));
    END IF;
    RETURN QUERY SELECT NULL::text, v_entity.entity_id, v_entity.canonical, NULL::uuid[], NULL::uuid, v_now,
                        cardinality(v_facts)::bigint, cardinality(v_notes)::bigint;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION link_mentions(p_tenant text, p_project text, p_entity uuid, p_scopes text[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_pattern text := name_pattern(p_tenant, p_entity);
    v_now timestamptz := clock_timestamp();
BEGIN
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, by_name)
    SELECT p_tenant, p_project, n.note_id, p_entity, v_now, true
    FROM memory_notes n
    WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
      AND (normalize(lower(concat_ws(' ', n.content, n.author, n.thread_id, array_to_string(n.tags, ' '))))
               ~ v_pattern
           OR EXISTS (SELECT FROM memory_history h
                      WHERE h.tenant_id = p_tenant AND h.note_id = n.note_id
                        AND normalize(lower(concat_ws(' ', h.old_content, h.new_content, h.reason)))
                            ~ v_pattern))
    ON CONFLICT DO NOTHING;
    INSERT INTO graph_fact_mentions (tenant_id, project_id, fact_id, entity_id, created_at)
    SELECT p_tenant, p_project, f.fact_id, p_entity, v_now
    FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND (p_scopes IS NULL OR f.scope = ANY (p_scopes))
      AND f.object_value IS NOT NULL AND f.subject_entity_id <> p_entity
      AND normalize(lower(f.object_value)) ~ v_pattern
    ON CONFLICT DO NOTHING;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION merge_entities(p_from uuid, p_into uuid, p_key text)
RETURNS TABLE (refused text, facts_moved bigint, facts_folded bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_names int;
    v_predicates uuid[];
    v_words uuid[];
    v_renamed uuid[];
    v_now timestamptz;
    v_moved bigint;
    v_folded bigint;
BEGIN
    -- Beside other merges, but never beside a tombstone.
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR SHARE;
    SELECT count(*) INTO v_names FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.entity_id IN (p_from, p_into) AND e.suppression = 0;
    IF p_from = p_into OR v_names < 2 THEN
        RETURN QUERY
        SELECT CASE WHEN p_from = p_into THEN 'same_entity' ELSE 'entity_not_found' END, 0::bigint, 0::bigint;
        RETURN;
    END IF;
    -- Those who write by these predicates finish first; then nobody can write about either entity.
    v_predicates := ARRAY(
        SELECT DISTINCT f.predicate_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project
          AND (f.subject_entity_id IN (p_from, p_into) OR f.object_entity_id IN (p_from, p_into)));
    PERFORM FROM graph_predicates p
    WHERE p.tenant_id = v_tenant AND p.predicate_id = ANY (v_predicates)
    ORDER BY p.predicate_id FOR KEY SHARE;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id IN (p_from, p_into) ORDER BY e.entity_id FOR UPDATE;
    IF EXISTS (SELECT FROM graph_entities e
               WHERE e.tenant_id = v_tenant AND e.entity_id IN (p_from, p_into) AND e.suppression > 0) THEN
        RETURN QUERY SELECT 'entity_not_found', 0::bigint, 0::bigint;
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM graph_entities e
               WHERE e.tenant_id = v_tenant AND e.entity_id IN (p_from, p_into) AND e.merged_into IS NOT NULL) THEN
        RETURN QUERY SELECT 'entity_merged', 0::bigint, 0::bigint;
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM graph_facts f
               WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.predicate_id <> ALL (v_predicates)
                 AND (f.subject_entity_id IN (p_from, p_into) OR f.object_entity_id IN (p_from, p_into))) THEN
        RAISE EXCEPTION 'a predicate came to it meanwhile' USING ERRCODE = '40001';
    END IF;
    -- The subjects of facts that point to either, so that their timelines hold still.
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id IN (
        SELECT f.subject_entity_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.object_entity_id IN (p_from, p_into))
    ORDER BY e.entity_id FOR NO KEY UPDATE;
    v_now := clock_timestamp();
    v_folded := fold_beliefs(v_tenant, v_project, v_agent, ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.retracted_at IS NULL AND f.suppression = 0
          AND (f.subject_entity_id IN (p_from, p_into) OR f.object_entity_id IN (p_from, p_into))),
        p_from, p_into, v_now);

    v_words := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = f.predicate_id AND p.status = 'pending'
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.object_value IS NOT NULL
          AND f.retracted_at IS NULL AND f.suppression = 0
          AND (f.subject_entity_id = p_from OR (f.subject_entity_id = p_into AND f.closed_at = v_now)));

    -- Of what is hidden no trace, not even in a number.
    SELECT count(*) INTO v_moved FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.suppression = 0
      AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from);
    v_renamed := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project
          AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from));
    UPDATE graph_facts f
    SET subject_entity_id = CASE f.subject_entity_id WHEN p_from THEN p_into ELSE f.subject_entity_id END,
        object_entity_id = CASE f.object_entity_id WHEN p_from THEN p_into ELSE f.object_entity_id END,
        object_hash = CASE f.object_entity_id WHEN p_from THEN sha256(uuid_send(p_into)) ELSE f.object_hash END,
        updated_at = v_now
    WHERE f.tenant_id = v_tenant AND f.project_id = v_project
      AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from);
    -- Values in words that stood on two entities, or were lengthened, may contradict others now.
    PERFORM note_conflicts(v_tenant, v_project, v_words, array_fill(v_now, ARRAY[cardinality(v_words)]));
    UPDATE entity_edges x
    SET subject_entity_id = CASE x.subject_entity_id WHEN p_from THEN p_into ELSE x.subject_entity_id END,
        object_entity_id = CASE x.object_entity_id WHEN p_from THEN p_into ELSE x.object_entity_id END
    WHERE x.tenant_id = v_tenant AND x.project_id = v_project
      AND (x.subject_entity_id = p_from OR x.object_entity_id = p_from);
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, suppression, by_name)
    SELECT m.tenant_id, m.project_id, m.note_id, p_into, m.created_at, m.suppression, m.by_name
    FROM note_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from
    ON CONFLICT DO NOTHING;
    DELETE FROM note_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;

    DELETE FROM graph_entity_aliases a
    WHERE a.tenant_id = v_tenant AND a.entity_id = p_from AND (
        EXISTS (SELECT FROM graph_entity_aliases b
                WHERE b.tenant_id = v_tenant AND b.entity_id = p_into AND b.alias_norm = a.alias_norm)
        OR EXISTS (SELECT FROM graph_entities e
                   WHERE e.tenant_id = v_tenant AND e.entity_id = p_into AND e.canonical_norm = a.alias_norm));
    UPDATE graph_entity_aliases a SET entity_id = p_into WHERE a.tenant_id = v_tenant AND a.entity_id = p_from;
    INSERT INTO graph_entity_aliases (tenant_id, alias_id, project_id, entity_id, alias, alias_norm, created_at)
    SELECT v_tenant, make_id(), v_project, p_into, e.canonical, e.canonical_norm, v_now
    FROM graph_entities e WHERE e.tenant_id = v_tenant AND e.entity_id = p_from
    ON CONFLICT (tenant_id, entity_id, alias_norm) DO NOTHING;
    UPDATE graph_entities e SET merged_into = p_into, updated_at = v_now
    WHERE e.tenant_id = v_tenant AND (e.entity_id = p_from OR e.merged_into = p_from);
    UPDATE graph_entities e SET kind = coalesce(e.kind, o.kind), updated_at = v_now
    FROM graph_entities o
    WHERE e.tenant_id = v_tenant AND e.entity_id = p_into AND o.tenant_id = v_tenant AND o.entity_id = p_from;

    -- They are found by the name that stays, and written up under it.
    UPDATE graph_facts f
    SET terms = fact_terms(project_language(v_tenant, v_project), s.canonical, p.canonical,
                           coalesce(o.canonical, f.object_value))
    FROM graph_facts r
    JOIN graph_entities s ON s.tenant_id = v_tenant AND s.entity_id = r.subject_entity_id
    JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = r.predicate_id
    LEFT JOIN graph_entities o ON o.tenant_id = v_tenant AND o.entity_id = r.object_entity_id
    WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_renamed) AND r.tenant_id = v_tenant AND r.fact_id = f.fact_id;
    PERFORM queue_units(v_tenant, v_project, 'fact', v_renamed);
    PERFORM drop_cards(v_tenant, ARRAY(
        SELECT c.card_id FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.entity_id IN (p_from, p_into)));

    UPDATE graph_fact_mentions m SET entity_id = p_into
    WHERE m.tenant_id = v_tenant AND m.entity_id = p_from AND NOT EXISTS (
        SELECT FROM graph_fact_mentions o
        WHERE o.tenant_id = v_tenant AND o.fact_id = m.fact_id AND o.entity_id = p_into);
    DELETE FROM graph_fact_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;
    -- A tombstone in some scopes goes along: what it hides of one it now hides of both.
    IF EXISTS (SELECT FROM tombstones t WHERE t.tenant_id = v_tenant AND t.entity_id IN (p_from, p_into)) THEN
        UPDATE tombstones t SET entity_id = p_into WHERE t.tenant_id = v_tenant AND t.entity_id = p_from;
        PERFORM settle_entity(v_tenant, v_project, v_agent, p_into);
    END IF;
    -- Facts that were moved may be hidden by what they point to; so are the lines this merge wrote about them.
    PERFORM settle_facts(v_tenant, v_project, v_agent, ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.suppression > 0
          AND (f.subject_entity_id = p_into OR f.object_entity_id = p_into)));

    PERFORM record_event('admin_action', p_key, jsonb_build_object(
        'action', 'entity_merge', 'from', p_from, 'into', p_into, 'facts_moved', v_moved, 'facts_folded', v_folded));
    RETURN QUERY SELECT NULL::text, v_moved, v_folded;
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
    """
CREATE OR REPLACE FUNCTION revoke_tombstone(p_tombstone uuid, p_id uuid, p_reason text, p_key text)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_tombstone tombstones;
    v_facts uuid[];
    v_notes uuid[];
    v_now timestamptz;
BEGIN
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR NO KEY UPDATE;
    SELECT t.* INTO v_tombstone FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND t.tombstone_id = p_tombstone;
    IF NOT FOUND THEN
        RETURN 'tombstone_not_found';
    END IF;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id = v_tombstone.entity_id FOR UPDATE;
    SELECT t.* INTO v_tombstone FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.tombstone_id = p_tombstone FOR UPDATE;
    IF v_tombstone.erased_at IS NOT NULL THEN
        RETURN 'tombstone_erased';
    END IF;
    IF EXISTS (SELECT FROM tombstone_revocations r
               WHERE r.tenant_id = v_tenant AND r.tombstone_id = p_tombstone) THEN
        RETURN 'tombstone_already_revoked';
    END IF;
    v_now := clock_timestamp();
    INSERT INTO tombstone_revocations (tenant_id, revocation_id, project_id, tombstone_id, reason, revoked_by, key_id,
                                       revoked_at)
    VALUES (v_tenant, p_id, v_project, p_tombstone, p_reason, v_agent, p_key, v_now);
    -- Which notes and facts name it was found out for tombstones alone.
    IF NOT EXISTS (SELECT FROM tombstones t
                   WHERE t.tenant_id = v_tenant AND t.entity_id = v_tombstone.entity_id AND t.named
                     AND t.erased_at IS NULL
                     AND NOT EXISTS (SELECT FROM tombstone_revocations r
                                     WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id)) THEN
        WITH gone AS (
            DELETE FROM note_entity_mentions m
            WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id AND m.by_name
            RETURNING m.note_id
        ) SELECT array_agg(g.note_id) INTO v_notes FROM gone g;
        WITH gone AS (
            DELETE FROM graph_fact_mentions m
            WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id
            RETURNING m.fact_id
        ) SELECT array_agg(g.fact_id) INTO v_facts FROM gone g;
    END IF;
    PERFORM settle_entity(v_tenant, v_project, v_agent, v_tombstone.entity_id);
    PERFORM settle_facts(v_tenant, v_project, v_agent, v_facts);
    PERFORM settle_notes(v_tenant, v_agent, v_notes);
    PERFORM record_event('tombstone_revoked', p_key, jsonb_build_object(
        'tombstone_id', p_tombstone, 'entity_id', v_tombstone.entity_id));
    UPDATE jobs j SET status = 'cancelled', finished_at = v_now
    WHERE j.tenant_id = v_tenant AND j.kind = 'erase' AND j.status = 'pending' AND j.dedupe_key = p_tombstone::text;
    IF v_tombstone.legal_hold THEN
        UPDATE jobs j
        SET status = 'pending', attempts = 0, available_at = v_now, finished_at = NULL, last_error = NULL
        FROM tombstones t
        WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND t.erase AND t.erased_at IS NULL
          AND NOT EXISTS (SELECT FROM tombstone_revocations r
                          WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id)
          AND j.tenant_id = v_tenant AND j.kind = 'erase' AND j.dedupe_key = t.tombstone_id::text
          AND j.status = 'failed';
    END IF;
    RETURN NULL;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION schedule_maintenance(p_jobs_before timestamptz, p_windows_before bigint)
RETURNS TABLE (tenant_id text, job_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    INSERT INTO public.jobs AS j (tenant_id, job_id, kind, payload, dedupe_key, created_by, available_at, created_at)
    SELECT t.tenant_id, gen_random_uuid(), 'maintenance', '{}', 'maintenance', 'schedule', v_now, v_now
    FROM public.tenants t
    WHERE EXISTS (SELECT FROM public.idempotency_keys i WHERE i.tenant_id = t.tenant_id AND i.expires_at <= v_now)
       OR EXISTS (SELECT FROM public.jobs f WHERE f.tenant_id = t.tenant_id
                  AND f.status IN ('completed', 'cancelled') AND f.finished_at < p_jobs_before)
       OR EXISTS (SELECT FROM public.rate_windows w WHERE w.tenant_id = t.tenant_id
                  AND coalesce(w.slots[cardinality(w.slots)], 0) < p_windows_before)
       OR EXISTS (SELECT FROM public.recall_traces r
                  JOIN public.projects p ON p.tenant_id = t.tenant_id AND p.project_id = r.project_id
                  WHERE r.tenant_id = t.tenant_id AND r.created_at < v_now
                        - make_interval(days => coalesce((p.settings ->> 'trace_days')::int, 30)))
    ON CONFLICT DO NOTHING
    RETURNING j.tenant_id, j.job_id;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION settle_entity(p_tenant text, p_project text, p_agent text, p_entity uuid)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_all text[] := ARRAY['agent_private', 'project_shared', 'org_shared', 'public'];
    v_erased text[];
    v_held text[];
    v_level smallint;
    v_decoy uuid := make_id();
BEGIN
    SELECT array_agg(DISTINCT u.scope) FILTER (WHERE NOT t.legal_hold),
           array_agg(DISTINCT u.scope) FILTER (WHERE t.legal_hold)
    INTO v_erased, v_held
    FROM tombstones t CROSS JOIN LATERAL unnest(coalesce(t.scopes, v_all)) u(scope)
    WHERE t.tenant_id = p_tenant AND t.entity_id = p_entity AND t.erased_at IS NULL AND NOT EXISTS (
        SELECT FROM tombstone_revocations r WHERE r.tenant_id = p_tenant AND r.tombstone_id = t.tombstone_id);
    -- While something of it can still be seen, so must its name.
    v_level := CASE WHEN v_erased @> v_all THEN 1
                    WHEN coalesce(v_erased, '{}') || coalesce(v_held, '{}') @> v_all THEN 2 ELSE 0 END;
    UPDATE graph_entities e
    SET erased_scopes = v_erased, held_scopes = v_held, suppression = v_level,
        decoy_id = CASE WHEN v_level > 0 THEN coalesce(e.decoy_id, v_decoy) END
    WHERE e.tenant_id = p_tenant AND e.entity_id IN (
        SELECT p_entity UNION ALL
        SELECT m.entity_id FROM graph_entities m WHERE m.tenant_id = p_tenant AND m.merged_into = p_entity);
    UPDATE graph_entity_aliases a SET suppression = v_level
    WHERE a.tenant_id = p_tenant AND a.entity_id = p_entity AND a.suppression <> v_level;
    PERFORM settle_facts(p_tenant, p_project, p_agent, ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.subject_entity_id = p_entity
        UNION
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.object_entity_id = p_entity
        UNION
        SELECT m.fact_id FROM graph_fact_mentions m WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity));
    PERFORM settle_notes(p_tenant, p_agent, ARRAY(
        SELECT m.note_id FROM note_entity_mentions m WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity));
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION settle_notes(p_tenant text, p_agent text, p_notes uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_change record;
    v_twin record;
    v_goes record;
    v_stays uuid;
BEGIN
    FOR v_change IN
        SELECT n.*, l.level
        FROM memory_notes n
        CROSS JOIN LATERAL (
            SELECT CASE WHEN bool_or(h.level = 1) THEN 1 WHEN bool_or(h.level = 2) THEN 2 ELSE 0 END::smallint AS level
            FROM note_entity_mentions m
            JOIN graph_entities e ON e.tenant_id = p_tenant AND e.entity_id = m.entity_id
            CROSS JOIN LATERAL (SELECT hidden_level(e.erased_scopes, e.held_scopes, n.scope) AS level) h
            WHERE m.tenant_id = p_tenant AND m.note_id = n.note_id
        ) l
        WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes) AND n.suppression <> l.level
        ORDER BY n.created_at, n.note_id
    LOOP
        IF v_change.level = 0 AND v_change.deleted_at IS NULL THEN
            SELECT n.* INTO v_twin FROM memory_notes n
            WHERE n.tenant_id = p_tenant AND n.project_id = v_change.project_id AND n.scope = v_change.scope
              AND n.owner_key = v_change.owner_key AND n.thread_id IS NOT DISTINCT FROM v_change.thread_id
              AND n.position IS NOT DISTINCT FROM v_change.position AND n.content_hash = v_change.content_hash
              AND n.deleted_at IS NULL AND n.suppression = 0;
            IF FOUND THEN
                IF v_twin.created_at < v_change.created_at THEN
                    v_goes := v_change;
                ELSE
                    v_goes := v_twin;
                END IF;
                v_stays := CASE v_goes.note_id WHEN v_twin.note_id THEN v_change.note_id ELSE v_twin.note_id END;
                INSERT INTO graph_fact_evidence (
                    tenant_id, project_id, evidence_id, fact_id, note_id, created_at, suppression)
                SELECT p_tenant, v.project_id, make_id(), v.fact_id, v_stays, v.created_at, v.suppression
                FROM graph_fact_evidence v WHERE v.tenant_id = p_tenant AND v.note_id = v_goes.note_id
                ON CONFLICT (tenant_id, fact_id, note_id) DO NOTHING;
                UPDATE memory_notes n SET deleted_at = v_now, updated_at = v_now, version = n.version + 1
                WHERE n.tenant_id = p_tenant AND n.note_id = v_goes.note_id;
                INSERT INTO memory_history (
                    tenant_id, history_id, project_id, note_id, agent_id, scope, garden_id, event, version, changed_by,
                    reason, old_content, created_at)
                VALUES (p_tenant, make_id(), v_goes.project_id, v_goes.note_id, v_goes.agent_id, v_goes.scope,
                        v_goes.garden_id, 'merged', v_goes.version + 1, p_agent, 'an older note says the same',
                        v_goes.content, v_now);
            END IF;
        END IF;
        UPDATE memory_notes n SET suppression = v_change.level
        WHERE n.tenant_id = p_tenant AND n.note_id = v_change.note_id;
        IF v_change.level = 0 THEN
            PERFORM queue_units(p_tenant, v_change.project_id, 'note', ARRAY[v_change.note_id]);
        ELSE
            DELETE FROM embedding_queue q
            WHERE q.tenant_id = p_tenant AND q.project_id = v_change.project_id
              AND q.model_id IN (SELECT m.model_id FROM embedding_models m) AND q.owner_kind = 'note'
              AND q.owner_id = v_change.note_id;
        END IF;
    END LOOP;
    UPDATE memory_history x SET suppression = n.suppression FROM memory_notes n
    WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes)
      AND x.tenant_id = p_tenant AND x.note_id = n.note_id AND x.suppression <> n.suppression;
    -- What is hidden has no vector: to mark it would cost the index as much as to make it anew.
    DELETE FROM embeddings x USING memory_notes n
    WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes) AND n.suppression > 0 AND x.tenant_id = p_tenant
      AND x.model_id IN (SELECT m.model_id FROM embedding_models m) AND x.view = 'self' AND x.owner_kind = 'note'
      AND x.owner_id = n.note_id;
    UPDATE note_entity_mentions x
    SET suppression = stricter_level(n.suppression, hidden_level(e.erased_scopes, e.held_scopes, n.scope))
    FROM memory_notes n, graph_entities e
    WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes)
      AND x.tenant_id = p_tenant AND x.note_id = n.note_id
      AND e.tenant_id = p_tenant AND e.entity_id = x.entity_id
      AND x.suppression <> stricter_level(n.suppression, hidden_level(e.erased_scopes, e.held_scopes, n.scope));
    UPDATE graph_fact_evidence x SET suppression = stricter_level(f.suppression, n.suppression)
    FROM memory_notes n, graph_facts f
    WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes)
      AND x.tenant_id = p_tenant AND x.note_id = n.note_id
      AND f.tenant_id = p_tenant AND f.fact_id = x.fact_id
      AND x.suppression <> stricter_level(f.suppression, n.suppression);
END
$$;
""",
)

SIGNATURES: tuple[str, ...] = (
    "apply_extraction(text, text, uuid, int, text, json, json, jsonb, int, text, interval)",
    "boost_notes(text, text, text[], text, interval)",
    "check_terms(int)",
    "diagnose_project(double precision, int, int)",
    "due_notes(text, text, text, timestamptz, int)",
    "extraction_start(text, text)",
    "find_revivable(text, text, int)",
    "first_id(timestamptz)",
    "follow_job(text, uuid, text)",
    "kept_notes(text, text, uuid[])",
    "purge_history(timestamptz, int)",
    "purge_links(timestamptz, int)",
    "purge_notes(timestamptz, int)",
    "purge_records(text, timestamptz, int)",
    "purge_vectors(timestamptz, int)",
    "queue_extractions(text, text, uuid[], text)",
    "read_extraction(text, text, uuid, text[])",
    "record_llm_calls(text, text, uuid, text, json)",
    "referenced_entities(text, text, uuid[])",
    "release_leases(int)",
    "requeue_dead(int)",
    "schedule_cycles()",
    "schedule_retention(timestamptz)",
    "settle_documents(text, uuid[])",
    "similar_notes(text, text, text, smallint, int, text, text, text, uuid[], text[], int)",
    "spelled_bytes(bytea)",
    "spent_tokens(text, text, text)",
    "swept_projects(text, text)",
    "target_stands(text, jsonb)",
)
# Functions that answer otherwise than before: made anew instead of replaced.
RETYPED: tuple[tuple[str, str], ...] = (
    ("read_job(text, text, text, uuid[], text, uuid)", "read_job(text, text, text, uuid[], text, uuid)"),
    ("schedule_maintenance(timestamptz, bigint)", "schedule_maintenance(bigint)"),
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
