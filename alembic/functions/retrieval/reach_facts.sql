-- Returns the facts of entities at most p_depth edges away from the seeds that match the context and the filter, with a
-- graph score and the hops to each, ordered by fact id: the p_limit best. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION reach_facts(
    p_context read_context, p_filter fact_filter, p_seeds uuid[], p_depth int, p_limit int)
RETURNS TABLE (fact_id uuid, score double precision, hops int)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    -- In variables of their own: fields of a record are slower to read for every edge.
    v_tenant text := p_context.tenant_id;
    v_project text := p_context.project_id;
    v_scope text := p_context.scope;
    v_valid timestamptz := p_context.valid_at;
    v_known timestamptz := p_context.known_at;
    v_present boolean := p_context.known_at IS NULL;
BEGIN
    RETURN QUERY
    SELECT g.fact_id, g.score, g.hops FROM (
        SELECT u.* FROM (
            SELECT DISTINCT ON (f.fact_id) f.fact_id, r.score, r.hops
            FROM (
                SELECT w.entity_id, w.hops,
                       (1.0 / (1 + w.hops)) * w.confidence / ln(1 + greatest(w.out_degree, 1)) AS score
                FROM expand_seeds(
                    p_context, ROW(p_depth, 'both', p_filter.min_confidence, 0, ARRAY[20, 10], 100)::traversal, p_seeds,
                    p_filter.min_trust, 1000) w
                UNION ALL
                -- The seeds themselves, reached over no edge.
                SELECT s.id, 0, 1 / ln(1 + greatest(d.degree, 1))
                FROM unnest(p_seeds) s(id)
                CROSS JOIN LATERAL (
                    SELECT count(*) AS degree FROM (
                        SELECT FROM entity_edges x
                        WHERE x.tenant_id = v_tenant AND x.project_id = v_project
                          AND x.subject_entity_id = s.id
                          AND (v_scope IS NULL OR x.scope = v_scope)
                          AND edge_stands(x.valid_from, x.valid_until, x.created_at, x.closed_at, x.retracted_at,
                                          v_valid, v_known)
                        LIMIT 1000) o) d
                ORDER BY 3 DESC, 1 LIMIT 40
            ) r
            CROSS JOIN LATERAL (
                SELECT f.fact_id FROM graph_facts f
                WHERE f.tenant_id = v_tenant AND f.project_id = v_project
                  AND f.subject_entity_id = r.entity_id
                  AND f.valid_until > CASE WHEN v_present THEN v_valid ELSE '-infinity' END
                  AND (v_scope IS NULL OR f.scope = v_scope)
                  AND (p_filter.relations IS NULL OR f.predicate_id = ANY (p_filter.relations))
                  AND f.confidence * f.source_trust >= CASE WHEN v_present THEN p_filter.min_trust ELSE 0 END
                  AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,
                                  v_tenant, v_valid, v_known)
                ORDER BY f.confidence DESC, f.fact_id DESC LIMIT 20
            ) f
            ORDER BY f.fact_id, r.score DESC, r.hops
        ) u ORDER BY u.score DESC, u.fact_id LIMIT p_limit
    ) g ORDER BY g.fact_id;
END
$$;
