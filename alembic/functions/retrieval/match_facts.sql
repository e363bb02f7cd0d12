-- The facts that have one of these terms, stand at the two times, are sure and trusted enough, and are best by BM25 over
-- all terms of the query (k1 .9, b .6). Of the owner, as match_notes is, and with the same care.
CREATE OR REPLACE FUNCTION match_facts(
    p_terms text[], p_idf double precision[], p_chosen text[], p_average double precision, p_most int, p_limit int,
    p_valid timestamptz, p_known timestamptz, p_scope text, p_confidence double precision, p_trust double precision)
RETURNS TABLE (fact_id uuid, score double precision)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := nullif(current_setting('app.agent_id', true), '');
    v_gardens uuid[] := coalesce(nullif(current_setting('app.gardens', true), '')::uuid[], '{}');
    v_holds boolean := coalesce(current_setting('app.reach', true), '') = 'legal_hold';
    v_keys text[];
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL OR cardinality(p_chosen) = 0 THEN
        RETURN;
    END IF;
    v_keys := lexical_keys(v_tenant, v_project, p_chosen);
    RETURN QUERY
    WITH found AS MATERIALIZED (
        SELECT f.fact_id, f.terms_length, ts_filter(setweight(f.terms, 'A', p_terms), '{a}') AS terms
        FROM graph_facts f
        CROSS JOIN LATERAL (
            SELECT fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, v_tenant, p_known)) c(sure)
        WHERE lexical_keys(f.tenant_id, f.project_id, tsvector_to_array(f.terms)) && v_keys
          AND f.tenant_id IS NOT DISTINCT FROM v_tenant AND f.project_id IS NOT DISTINCT FROM v_project
          AND (f.suppression = 0 OR (f.suppression = 2 AND v_holds))
          AND (f.scope <> 'agent_private' OR f.agent_id = v_agent)
          AND (f.garden_id IS NULL OR f.garden_id = ANY (v_gardens))
          AND (p_scope IS NULL OR f.scope = p_scope)
          AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,
                          v_tenant, p_valid, p_known)
          AND c.sure > 0 AND c.sure >= p_confidence AND c.sure * f.source_trust >= p_trust
        LIMIT p_most
    )
    SELECT f.fact_id, sum(t.idf * f.tf * 1.9 / (f.tf + 0.9 * (0.4 + 0.6 * f.terms_length / p_average)))
    FROM (
        -- Taken apart in the list of columns: as a table, each would be stored before it is read.
        SELECT w.fact_id, w.terms_length, (w.word).lexeme, cardinality((w.word).positions)::double precision AS tf
        FROM (SELECT f.fact_id, f.terms_length, unnest(f.terms) AS word FROM found f OFFSET 0) w
    ) f
    JOIN unnest(p_terms, p_idf) t(term, idf) ON t.term = f.lexeme
    GROUP BY f.fact_id ORDER BY 2 DESC, 1 LIMIT p_limit;
END
$$;
