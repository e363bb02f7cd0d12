-- Returns what the trust in sources is computed from: their registration, the project's trust mode, and the record of
-- their last thousand facts (retracted as wrong is a failure). Private facts count, hidden ones do not.
CREATE OR REPLACE FUNCTION judge_sources(p_sources text[])
RETURNS TABLE (
    source text, identity text, authority text, blocklisted boolean, agents text[], trust_mode text, facts bigint,
    failures bigint, known_for interval)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
BEGIN
    RETURN QUERY
    SELECT w.source, s.identity, s.authority, coalesce(s.blocklisted, false), s.agents,
           coalesce(p.settings ->> 'trust_mode', 'off'), h.facts, h.failures, clock_timestamp() - h.since
    FROM unnest(p_sources) w(source)
    LEFT JOIN registered_sources(v_tenant, v_project) s ON s.source = w.source
    LEFT JOIN projects p ON p.tenant_id = v_tenant AND p.project_id = v_project
    CROSS JOIN LATERAL (
        SELECT count(*) AS facts, min(f.created_at) AS since,
               count(*) FILTER (WHERE f.retracted_at IS NOT NULL AND EXISTS (
                   SELECT FROM fact_retractions r
                   WHERE r.tenant_id = v_tenant AND r.fact_id = f.fact_id AND r.kind IN ('retracted', 'resolved')))
                   AS failures
        FROM (SELECT f.fact_id, f.created_at, f.retracted_at FROM graph_facts f
              WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.source = w.source
                AND f.suppression = 0 AND (coalesce(cardinality(s.agents), 0) = 0 OR f.agent_id = ANY (s.agents))
              ORDER BY f.created_at DESC LIMIT 1000) f
    ) h;
END
$$;
