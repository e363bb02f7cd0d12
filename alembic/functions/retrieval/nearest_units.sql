-- Returns the units of a kind nearest to a query's vector, by cosine, that match the context and, for facts, the
-- filter. Exact where a project has few vectors of the kind or a small share of the index, where a filtered index
-- search loses half of the results; by the index otherwise (see nearest_indexed). Filters apply before the limit. Runs
-- with the rights of its caller, so that the policy applies to every vector.
CREATE OR REPLACE FUNCTION nearest_units(
    p_context read_context, p_filter fact_filter, p_vector vector_query, p_kind text, p_limit int)
RETURNS TABLE (owner_id uuid, cosine double precision)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
-- Declared here so that set_config in nearest_indexed ends with this function.
SET enable_sort = on
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_query vector := p_vector.vector::vector;
    v_units uuid[];
    v_cosines double precision[];
    v_condition text := unit_condition(p_kind, p_context.known_at);
    v_user text := current_setting('app.user_id', true);
BEGIN
    p_context.valid_at := coalesce(p_context.valid_at, p_context.known_at, clock_timestamp());
    IF prefers_index(p_context, p_vector.model_id, p_kind, p_limit) THEN
        SELECT n.units, n.cosines INTO v_units, v_cosines
        FROM nearest_indexed(p_context, p_filter, p_vector, p_kind, p_limit) n;
        IF cardinality(v_units) = p_limit THEN
            RETURN QUERY SELECT u.unit, u.cosine FROM unnest(v_units, v_cosines) u(unit, cosine);
            RETURN;
        END IF;
        -- So few of the nearest units may be read that the index gave up: scan all of them.
    END IF;
    PERFORM set_config('enable_sort', 'on', true);
    IF v_condition = '' AND v_user <> '*' THEN
        -- What a user has and what all users share, by an index: a project may have millions of others.
        RETURN QUERY
        SELECT e.owner_id, -(e.vector <#> v_query) FROM embeddings e
        WHERE e.tenant_id = p_context.tenant_id AND e.project_id = p_context.project_id AND e.view = 'self'
          AND e.user_id = ANY (ARRAY['', v_user]) AND (p_context.scope IS NULL OR e.scope = p_context.scope)
          AND e.owner_kind = p_kind AND e.model_id = p_vector.model_id
        ORDER BY e.vector <#> v_query, e.owner_id LIMIT p_limit;
        RETURN;
    END IF;
    IF v_condition = '' THEN
        RETURN QUERY
        SELECT e.owner_id, -(e.vector <#> v_query) FROM embeddings e
        WHERE e.tenant_id = p_context.tenant_id AND e.project_id = p_context.project_id AND e.view = 'self'
          AND (p_context.scope IS NULL OR e.scope = p_context.scope) AND e.owner_kind = p_kind
          AND e.model_id = p_vector.model_id
        ORDER BY e.vector <#> v_query, e.owner_id LIMIT p_limit;
        RETURN;
    END IF;
    -- In the order of distance, until enough match.
    RETURN QUERY EXECUTE format(
        'SELECT e.owner_id, -e.distance FROM ('
        '    SELECT e.owner_id, e.vector <#> $1 AS distance FROM embeddings e'
        '    WHERE e.tenant_id = $2 AND e.project_id = $3 AND e.view = ''self'' AND ($4::text IS NULL OR e.scope = $4)%s'
        '      AND e.owner_kind = %L AND e.model_id = %s'
        '    ORDER BY 2, 1 OFFSET 0) e %s LIMIT $5',
        CASE WHEN v_user <> '*' THEN ' AND e.user_id = ANY (ARRAY['''', $12])' END, p_kind, p_vector.model_id,
        v_condition)
    USING v_query, p_context.tenant_id, p_context.project_id, p_context.scope, p_limit, p_context.valid_at,
          p_context.known_at, p_filter.relations, p_filter.min_confidence, p_filter.min_trust,
          p_filter.include_contradicted, v_user;
END
$$;
