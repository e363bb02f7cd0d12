-- Returns the facts that contain one of the chosen terms and match the context and the filter, the best by BM25 over
-- all terms of the query. Reads at most p_most facts. Runs as the owner, see match_notes.
CREATE OR REPLACE FUNCTION match_facts(
    p_context read_context, p_filter fact_filter, p_terms term_query, p_chosen text[], p_most int, p_limit int)
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
    v_user text := current_setting('app.user_id', true);
    v_holds boolean := coalesce(current_setting('app.reach', true), '') = 'legal_hold';
    v_known timestamptz := p_context.known_at;
    v_valid timestamptz := p_context.valid_at;
    v_scope text := p_context.scope;
    v_confidence double precision := p_filter.min_confidence;
    v_trust double precision := p_filter.min_trust;
    v_average double precision := p_terms.average;
    v_keys text[];
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL OR cardinality(p_chosen) = 0 THEN
        RETURN;
    END IF;
    v_keys := search_keys(v_tenant, v_project, v_user, p_chosen);
    RETURN QUERY
    WITH found AS MATERIALIZED (
        SELECT f.fact_id, f.terms_length, ts_filter(setweight(f.terms, 'A', p_terms.terms), '{a}') AS terms
        FROM graph_facts f
        CROSS JOIN LATERAL (
            SELECT fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, v_tenant, v_known)
        ) c(confidence)
        WHERE owned_keys(f.tenant_id, f.project_id, f.user_id, tsvector_to_array(f.terms)) && v_keys
          AND f.tenant_id IS NOT DISTINCT FROM v_tenant AND f.project_id IS NOT DISTINCT FROM v_project
          AND (f.suppression = 0 OR (f.suppression = 2 AND v_holds))
          AND is_visible(f.scope, f.agent_id, f.garden_id, f.user_id, v_agent, v_gardens, v_user)
          AND (v_scope IS NULL OR f.scope = v_scope)
          AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,
                          v_tenant, v_valid, v_known)
          AND c.confidence > 0 AND c.confidence >= v_confidence AND c.confidence * f.source_trust >= v_trust
        LIMIT p_most
    )
    SELECT f.fact_id, sum(bm25_score(t.idf, f.frequency, f.terms_length, v_average))
    FROM (
        -- unnest in the list of columns: in FROM, each set would be stored before it is read.
        SELECT w.fact_id, w.terms_length, (w.word).lexeme,
               cardinality((w.word).positions)::double precision AS frequency
        FROM (SELECT f.fact_id, f.terms_length, unnest(f.terms) AS word FROM found f OFFSET 0) w
    ) f
    JOIN unnest(p_terms.terms, p_terms.idf) t(term, idf) ON t.term = f.lexeme
    GROUP BY f.fact_id ORDER BY 2 DESC, 1 LIMIT p_limit;
END
$$;
