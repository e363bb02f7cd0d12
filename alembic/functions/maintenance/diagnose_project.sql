-- How the scope's project is, in figures: its queue, its notes, its index, its calls of models, its recoveries, and what
-- was spent. Of the owner, so that private rows count too; answers numbers alone. What is hidden does not count.
-- p_least: a fact believed no more than this has no vector; p_sample: how many of the newest notes are read anew to see
-- whether they are found by their words; p_revivable: how far dead jobs that are worth another round are counted.
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
               WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.suppression = 0)
            + (SELECT count(*) FROM branches b
               JOIN graph_objects o ON o.tenant_id = v_tenant AND o.branch_id = b.branch_id
               WHERE b.tenant_id = v_tenant AND b.project_id = v_project AND b.name = 'main'
                 AND o.deleted_at IS NULL AND o.suppression = 0 AND o.embed_text IS NOT NULL);
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
