-- The units whose vectors are nearest to a query's, by cosine: exactly where a project has few vectors or a small share of
-- its index, where a filtered index would lose half of them; by the index otherwise, until enough are found.
-- Runs with the rights of its caller: the policy is asked of every vector.
CREATE OR REPLACE FUNCTION near_units(
    p_tenant text, p_project text, p_kind text, p_model smallint, p_dimensions int, p_vector text, p_limit int,
    p_scope text)
RETURNS TABLE (owner_id uuid, cosine double precision)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_query vector := p_vector::vector;
    v_vectors bigint;
    v_share double precision;
BEGIN
    -- How many of this kind there are; cards are few.
    SELECT least(c.vectors, CASE p_kind WHEN 'card' THEN 0 ELSE coalesce((
               SELECT s.documents + s.added FROM lexical_statistics s
               WHERE s.tenant_id = p_tenant AND s.project_id = p_project AND s.kind = p_kind), c.vectors) END)
    INTO v_vectors FROM embedding_counts c
    WHERE c.tenant_id = p_tenant AND c.project_id = p_project AND c.model_id = p_model AND c.view = 'self';
    IF v_vectors > 10000 THEN
        SELECT v_vectors / greatest(r.reltuples, 1) INTO v_share FROM pg_class r
        WHERE r.oid = (SELECT e.tableoid FROM embeddings e
                       WHERE e.tenant_id = p_tenant AND e.model_id = p_model AND e.view = 'self' LIMIT 1);
    END IF;
    IF v_share >= 0.05 THEN
        -- Here, and not with the function: a session that has met no vector yet does not know these settings.
        PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', '200', true),
                set_config('hnsw.max_scan_tuples', '40000', true);
        RETURN QUERY EXECUTE format(
            'WITH near AS MATERIALIZED ('
            '    SELECT e.owner_id, e.vector::vector(%1$s) <#> $1::vector(%1$s) AS distance FROM embeddings e'
            '    WHERE e.tenant_id = $2 AND e.project_id = $3 AND e.model_id = %2$s AND e.view = ''self'''
            '      AND e.owner_kind = $4 AND ($5 IS NULL OR e.scope = $5)'
            '    ORDER BY e.vector::vector(%1$s) <#> $1::vector(%1$s) LIMIT $6)'
            'SELECT n.owner_id, -n.distance FROM near n ORDER BY n.distance, n.owner_id',
            p_dimensions, p_model)
        USING v_query, p_tenant, p_project, p_kind, p_scope, p_limit;
    ELSE
        RETURN QUERY
        WITH mine AS MATERIALIZED (
            SELECT e.owner_id, e.vector <#> v_query AS distance FROM embeddings e
            WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.model_id = p_model AND e.view = 'self'
              AND e.owner_kind = p_kind AND (p_scope IS NULL OR e.scope = p_scope)
        )
        SELECT m.owner_id, -m.distance FROM mine m ORDER BY m.distance, m.owner_id LIMIT p_limit;
    END IF;
END
$$;
