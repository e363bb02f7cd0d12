-- Returns the units of a kind nearest to a query's vector by the HNSW index, with their cosines, the nearest first;
-- fewer than p_limit when the index gives up. Part of nearest_units, whose settings end what set_config begins here.
CREATE OR REPLACE FUNCTION nearest_indexed(
    p_context read_context, p_filter fact_filter, p_vector vector_query, p_kind text, p_limit int,
    OUT units uuid[], OUT cosines double precision[])
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    v_query vector := p_vector.vector::vector;
    v_condition text := coalesce(nullif(unit_condition(p_kind, p_context.known_at), ''), 'WHERE true');
    -- In variables of their own: fields of a record are slower to read for every vector.
    v_tenant text := p_context.tenant_id;
    v_project text := p_context.project_id;
    v_scope text := p_context.scope;
    v_valid timestamptz := p_context.valid_at;
    v_known timestamptz := p_context.known_at;
    v_relations uuid[] := p_filter.relations;
    v_confidence double precision := p_filter.min_confidence;
    v_trust double precision := p_filter.min_trust;
    v_contradicted boolean := p_filter.include_contradicted;
BEGIN
    -- Not as settings of a function: a session that has not used pgvector yet does not know them.
    PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true),
            set_config('hnsw.ef_search', least(greatest(95, 3 * p_limit / 2), 400)::text, true),
            set_config('hnsw.max_scan_tuples', '40000', true), set_config('enable_sort', 'off', true);
    -- The index stores half precision; the cosines returned are exact.
    IF p_vector.model_id = 1 AND p_vector.dimensions = 384 AND p_kind = 'note' AND v_known IS NULL THEN
        -- The same as below for the default model: planned once for each session, which saves a fifth of the time.
        WITH near AS MATERIALIZED (
            SELECT e.owner_id, e.vector <#> v_query AS distance FROM embeddings e
            WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.view = 'self'
              AND (v_scope IS NULL OR e.scope = v_scope) AND e.owner_kind = 'note' AND e.model_id = 1
            ORDER BY e.vector::halfvec(384) <#> v_query::halfvec(384) LIMIT p_limit
        )
        SELECT array_agg(n.owner_id ORDER BY n.distance, n.owner_id),
               array_agg(-n.distance ORDER BY n.distance, n.owner_id)
        INTO units, cosines FROM near n;
    ELSIF p_vector.model_id = 1 AND p_vector.dimensions = 384 AND p_kind = 'fact' THEN
        WITH near AS MATERIALIZED (
            SELECT e.owner_id, e.vector <#> v_query AS distance FROM embeddings e
            CROSS JOIN LATERAL (
                SELECT fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, v_tenant, v_known) AS confidence,
                       f.source_trust
                FROM graph_facts f
                WHERE f.tenant_id = v_tenant AND f.fact_id = e.owner_id
                  AND (v_relations IS NULL OR f.predicate_id = ANY (v_relations))
                  AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,
                                  v_tenant, v_valid, v_known)
                OFFSET 0) h
            WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.view = 'self'
              AND (v_scope IS NULL OR e.scope = v_scope) AND e.owner_kind = 'fact' AND e.model_id = 1
              AND h.confidence >= v_confidence AND h.confidence > 0
              AND h.confidence * h.source_trust >= v_trust
              AND (v_contradicted
                   OR NOT is_overruled(v_tenant, e.owner_id, v_valid, v_known, v_confidence, v_trust))
            ORDER BY e.vector::halfvec(384) <#> v_query::halfvec(384) LIMIT p_limit
        )
        SELECT array_agg(n.owner_id ORDER BY n.distance, n.owner_id),
               array_agg(-n.distance ORDER BY n.distance, n.owner_id)
        INTO units, cosines FROM near n;
    ELSE
        -- Kind and model are literals, so that the planner sees that the partial index fits.
        EXECUTE format(
            'WITH near AS MATERIALIZED ('
            '    SELECT e.owner_id, e.vector <#> $1 AS distance FROM embeddings e %2$s'
            '    AND e.tenant_id = $2 AND e.project_id = $3 AND e.view = ''self'''
            '    AND ($4::text IS NULL OR e.scope = $4) AND e.owner_kind = %3$L AND e.model_id = %4$s'
            '    ORDER BY e.vector::halfvec(%1$s) <#> $1::halfvec(%1$s) LIMIT $5)'
            'SELECT array_agg(n.owner_id ORDER BY n.distance, n.owner_id),'
            '       array_agg(-n.distance ORDER BY n.distance, n.owner_id) FROM near n',
            p_vector.dimensions, v_condition, p_kind, p_vector.model_id)
        INTO units, cosines
        USING v_query, v_tenant, v_project, v_scope, p_limit, v_valid, v_known, v_relations, v_confidence, v_trust,
              v_contradicted;
    END IF;
END
$$;
