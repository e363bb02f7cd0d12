-- Returns the health figures of the scope's project: jobs, notes, search index, model calls, recoveries and tokens.
-- Runs as the owner so that private rows are counted too; returns only counts. Hidden rows are not counted.
-- p_least: facts with at most this confidence have no vector; p_sample: how many of the newest notes have their terms
-- checked; p_revivable: the limit of counting dead jobs that can be requeued; p_keep_days: after how many days deleted
-- notes are purged.
CREATE OR REPLACE FUNCTION diagnose_project(
    p_least double precision, p_sample int, p_revivable int, p_keep_days int)
RETURNS TABLE (
    settings jsonb, depth bigint, oldest_seconds double precision, ended bigint, dead bigint, failed bigint,
    revivable bigint, long_leases bigint, stale_leases bigint, notes bigint, deleted bigint, expired bigint,
    unindexed bigint, sampled bigint, stale bigint, embedding boolean, units bigint, vectors bigint, queued bigint,
    calls bigint, succeeded bigint, recoveries bigint, extractions bigint, graph_facts boolean, lost_links bigint,
    input_tokens bigint, output_tokens bigint, unreachable_names uuid[])
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
    v_period text;
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RAISE EXCEPTION 'diagnose_project needs tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;
    SELECT p.settings INTO settings FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project;
    v_period := settings #>> '{pipeline,extraction_budget_period}';

    SELECT j.* INTO depth, oldest_seconds, ended, dead, failed, long_leases, stale_leases, lost_links
    FROM diagnose_jobs(v_tenant, v_project, v_now) j;
    SELECT count(*) INTO revivable FROM find_requeuable_jobs(v_tenant, v_project, p_revivable);
    SELECT n.* INTO notes, deleted, expired, unindexed, extractions, recoveries, sampled, stale
    FROM diagnose_notes(v_tenant, v_project, v_now, p_sample, p_keep_days) n;
    SELECT v.* INTO embedding, units, vectors, queued
    FROM diagnose_vectors(v_tenant, v_project, notes - deleted, p_least) v;
    graph_facts := EXISTS (
        SELECT FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.source = 'pipeline');

    SELECT count(*), count(*) FILTER (WHERE c.succeeded) INTO calls, succeeded FROM (
        SELECT c.succeeded FROM llm_calls c
        WHERE c.tenant_id = v_tenant AND c.project_id = v_project
        ORDER BY c.created_at DESC LIMIT 100) c;
    SELECT coalesce(sum(u.input_tokens), 0), coalesce(sum(u.output_tokens), 0) INTO input_tokens, output_tokens
    FROM llm_usage u
    WHERE u.tenant_id = v_tenant AND u.project_id = v_project AND u.day >= budget_period_start(v_period);
    -- Entities from before names were compared in compatibility form, whose name another one has now.
    unreachable_names := ARRAY(
        SELECT e.entity_id FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.suppression = 0 AND e.merged_into IS NULL
          AND octet_length(e.canonical_norm) <> length(e.canonical_norm)
          AND (e.canonical_norm IS NOT NFKC NORMALIZED
               OR e.canonical_norm ~ format('[%s]', ignorable_characters()))
        ORDER BY e.entity_id LIMIT 20);
    RETURN NEXT;
END
$$;
