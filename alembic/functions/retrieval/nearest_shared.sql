-- Returns the units of a kind that other projects share, nearest to a query's vector, that match the context and, for
-- facts, the filter. Exact, over the newest 20,000 of them. Called by find_shared_notes and find_shared_facts, as the
-- owner.
CREATE OR REPLACE FUNCTION nearest_shared(
    p_context read_context, p_filter fact_filter, p_vector vector_query, p_kind text, p_limit int)
RETURNS uuid[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_query vector := p_vector.vector::vector;
    v_tenant text := p_context.tenant_id;
    v_valid timestamptz := p_context.valid_at;
    v_confidence double precision := p_filter.min_confidence;
    v_trust double precision := p_filter.min_trust;
BEGIN
    IF v_query IS NULL THEN
        RETURN '{}';
    END IF;
    RETURN ARRAY(
        SELECT e.owner_id FROM (
            SELECT e.owner_id, e.vector <#> v_query AS distance FROM (
                SELECT e.owner_id, e.vector FROM embeddings e
                WHERE e.tenant_id = v_tenant AND e.model_id = p_vector.model_id AND e.owner_kind = p_kind
                  AND e.view = 'self' AND is_shared(e.scope, e.garden_id, e.user_id, e.suppression)
                  AND e.project_id <> p_context.project_id AND (p_context.scope IS NULL OR e.scope = p_context.scope)
                ORDER BY e.owner_id DESC LIMIT 20000) e
            ORDER BY 2, 1 OFFSET 0) e
        -- In the order of distance, until enough match.
        WHERE CASE WHEN p_kind = 'note' THEN EXISTS (
                  SELECT FROM memory_notes n
                  WHERE n.tenant_id = v_tenant AND n.note_id = e.owner_id AND n.deleted_at IS NULL)
              ELSE EXISTS (
                  SELECT FROM graph_facts f
                  WHERE f.tenant_id = v_tenant AND f.fact_id = e.owner_id
                    AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,
                                    v_tenant, v_valid, NULL)
                    AND f.confidence > 0 AND f.confidence >= v_confidence AND f.confidence * f.source_trust >= v_trust)
                  AND (p_filter.include_contradicted
                       OR NOT is_overruled(v_tenant, e.owner_id, v_valid, NULL, v_confidence, v_trust)) END
        LIMIT p_limit);
END
$$;
