-- Returns those of the found and reached facts that match the context and the filter, as a JSON array of arrays in the
-- order of FactRow (app/retrieval/candidates.py). Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION present_facts(
    p_context read_context, p_filter fact_filter, p_terms term_query, p_vector vector_query, p_found uuid[],
    p_reached uuid[], p_scores double precision[], p_hops int[])
RETURNS text
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_query vector := p_vector.vector::vector;
    v_tenant text := p_context.tenant_id;
    v_valid timestamptz := p_context.valid_at;
    v_known timestamptz := p_context.known_at;
    v_average double precision := p_terms.average;
BEGIN
    RETURN (
    WITH chosen AS MATERIALIZED (
        SELECT c.id, max(c.graph) AS graph, min(c.hops) AS hops FROM (
            SELECT h.id, NULL::double precision AS graph, 0 AS hops FROM unnest(p_found) h(id)
            UNION ALL
            SELECT w.id, w.graph, w.hops FROM unnest(p_reached, p_scores, p_hops) w(id, graph, hops)
        ) c GROUP BY c.id
    ), matching AS MATERIALIZED (
        SELECT f.*, c.graph, c.hops FROM chosen c
        CROSS JOIN LATERAL (
            SELECT f.fact_id, f.garden_id, f.source_trust, f.created_at, f.access_count, f.terms_length,
                   ts_filter(setweight(f.terms, 'A', p_terms.terms), '{a}') AS terms,
                   fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, v_tenant, v_known)
                       AS confidence
            FROM graph_facts f
            WHERE f.tenant_id = v_tenant AND f.fact_id = c.id AND f.project_id = p_context.project_id
              AND (p_context.scope IS NULL OR f.scope = p_context.scope)
              AND (p_filter.relations IS NULL OR f.predicate_id = ANY (p_filter.relations))
              AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,
                              v_tenant, v_valid, v_known)
            OFFSET 0) f
        WHERE f.confidence >= p_filter.min_confidence AND f.confidence > 0
          AND f.confidence * f.source_trust >= p_filter.min_trust
    )
    SELECT coalesce(json_agg(json_build_array(
           s.fact_id, coalesce(b.score, 0), e.cosine, s.graph, s.hops, s.confidence, s.source_trust,
           extract(epoch FROM s.created_at), s.access_count, k.contradicted,
           NOT (k.contradicted AND is_overruled(
               v_tenant, s.fact_id, v_valid, v_known, p_filter.min_confidence, p_filter.min_trust)),
           CASE WHEN EXISTS (SELECT FROM fact_derivations d
                             WHERE d.tenant_id = v_tenant AND d.fact_id = s.fact_id AND d.kind = 'derived')
                THEN derivation_depth(v_tenant, s.fact_id, 5) ELSE 0 END,
           s.garden_id IS NOT NULL AND EXISTS (
               SELECT FROM gardens g
               WHERE g.tenant_id = v_tenant AND g.garden_id = s.garden_id AND g.slug = 'quarantine')
           ) ORDER BY s.fact_id), '[]')::text
    FROM matching s
    LEFT JOIN (
        SELECT x.fact_id, sum(bm25_score(t.idf, x.frequency, x.terms_length, v_average)) AS score
        FROM (
            SELECT w.fact_id, w.terms_length, (w.word).lexeme,
                   cardinality((w.word).positions)::double precision AS frequency
            FROM (SELECT x.fact_id, x.terms_length, unnest(x.terms) AS word FROM matching x OFFSET 0) w
        ) x
        JOIN unnest(p_terms.terms, p_terms.idf) t(term, idf) ON t.term = x.lexeme
        GROUP BY x.fact_id
    ) b ON b.fact_id = s.fact_id
    LEFT JOIN LATERAL (
        SELECT -(e.vector <#> v_query) AS cosine FROM embeddings e
        WHERE v_query IS NOT NULL
          AND e.tenant_id = v_tenant AND e.model_id = p_vector.model_id AND e.view = 'self'
          AND e.owner_kind = 'fact' AND e.owner_id = s.fact_id
        OFFSET 0) e ON true
    CROSS JOIN LATERAL (
        SELECT count(*) > 0 AS contradicted FROM (
            SELECT FROM fact_conflicts k
            WHERE k.tenant_id = v_tenant AND k.fact_a = s.fact_id
              AND is_open_conflict(k.status, k.detected_at, k.resolved_at, v_known)
            UNION ALL
            SELECT FROM fact_conflicts k
            WHERE k.tenant_id = v_tenant AND k.fact_b = s.fact_id
              AND is_open_conflict(k.status, k.detected_at, k.resolved_at, v_known)) k
    ) k);
END
$$;
