-- Returns the facts that other projects share, that contain terms of the query and that match the context and the
-- filter, the best by BM25; see match_shared_notes. Called by find_shared_facts, as the owner.
CREATE OR REPLACE FUNCTION match_shared_facts(
    p_context read_context, p_filter fact_filter, p_terms term_query, p_limit int)
RETURNS uuid[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := p_context.tenant_id;
    v_project text := p_context.project_id;
    v_scope text := p_context.scope;
    v_valid timestamptz := p_context.valid_at;
    v_confidence double precision := p_filter.min_confidence;
    v_trust double precision := p_filter.min_trust;
    v_average double precision := p_terms.average;
    v_keys text[];
BEGIN
    v_keys := lexical_keys(v_tenant, '', choose_terms(p_terms.terms, ARRAY(
        SELECT (SELECT count(*) FROM (
                    SELECT FROM graph_facts f
                    WHERE lexical_keys(f.tenant_id, '', tsvector_to_array(f.terms))
                          && lexical_keys(v_tenant, '', ARRAY[t.term])
                      AND f.tenant_id IS NOT DISTINCT FROM v_tenant AND f.project_id <> v_project
                      AND is_shared(f.scope, f.garden_id, f.user_id, f.suppression) AND f.retracted_at IS NULL
                    LIMIT 1000) d)
        FROM unnest(p_terms.terms) WITH ORDINALITY t(term, place) ORDER BY t.place), 2000));
    RETURN ARRAY(
        WITH found AS MATERIALIZED (
            SELECT f.fact_id, f.terms_length, ts_filter(setweight(f.terms, 'A', p_terms.terms), '{a}') AS terms
            FROM graph_facts f
            WHERE lexical_keys(f.tenant_id, '', tsvector_to_array(f.terms)) && v_keys
              AND f.tenant_id IS NOT DISTINCT FROM v_tenant AND f.project_id <> v_project
              AND is_shared(f.scope, f.garden_id, f.user_id, f.suppression) AND (v_scope IS NULL OR f.scope = v_scope)
              AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,
                              v_tenant, v_valid, NULL)
              AND f.confidence > 0 AND f.confidence >= v_confidence AND f.confidence * f.source_trust >= v_trust
            LIMIT 4000
        ), best AS (
            SELECT w.fact_id, sum(bm25_score(
                       t.idf, cardinality((w.word).positions), w.terms_length, v_average)) AS score
            FROM (SELECT f.fact_id, f.terms_length, unnest(f.terms) AS word FROM found f OFFSET 0) w
            JOIN unnest(p_terms.terms, p_terms.idf) t(term, idf) ON t.term = (w.word).lexeme
            GROUP BY w.fact_id ORDER BY 2 DESC, 1
        )
        SELECT b.fact_id FROM best b
        -- Tested one by one, until there are enough.
        WHERE p_filter.include_contradicted
           OR NOT is_overruled(v_tenant, b.fact_id, v_valid, NULL, v_confidence, v_trust)
        LIMIT p_limit);
END
$$;
