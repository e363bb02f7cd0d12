-- The units whose vectors are nearest to a query's, by cosine, of those that hold at the two times and are sure and trusted
-- enough (without p_contradicted: and that no better one contradicts): exactly where a project has few vectors of the kind or a small share of its index, where a filtered index would
-- lose half of them; by the index otherwise, until enough are found. What is passed over does not count: history does not
-- crowd out the present. Runs with the rights of its caller: the policy is asked of every vector.
CREATE OR REPLACE FUNCTION near_units(
    p_tenant text, p_project text, p_kind text, p_model smallint, p_dimensions int, p_vector text, p_limit int,
    p_scope text, p_valid timestamptz DEFAULT NULL, p_known timestamptz DEFAULT NULL,
    p_relations uuid[] DEFAULT NULL, p_confidence double precision DEFAULT 0, p_trust double precision DEFAULT 0,
    p_contradicted boolean DEFAULT true)
RETURNS TABLE (owner_id uuid, cosine double precision)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
-- Named here so that what the function does to it ends with it.
SET enable_sort = on
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_query vector := p_vector::vector;
    v_vectors bigint;
    v_share double precision;
    v_valid timestamptz := coalesce(p_valid, p_known, clock_timestamp());
    v_holds text := '';
    v_enough text := '';
    -- Kind and model are written out: that an index has only these must be plain to see.
    v_mine text := format(
        'e.tenant_id = $2 AND e.project_id = $3 AND e.view = ''self'' AND ($4::text IS NULL OR e.scope = $4) '
        'AND e.owner_kind = %L AND e.model_id = %s', p_kind, p_model);
    v_units uuid[];
    v_cosines double precision[];
BEGIN
    -- How many of this kind there are; cards and objects are few.
    IF p_kind NOT IN ('card', 'object') THEN
        SELECT CASE WHEN c.notes + c.facts = 0 THEN c.vectors WHEN p_kind = 'note' THEN c.notes ELSE c.facts END
        INTO v_vectors FROM embedding_counts c
        WHERE c.tenant_id = p_tenant AND c.project_id = p_project AND c.model_id = p_model AND c.view = 'self';
    END IF;
    IF v_vectors > 25000 THEN
        -- Of the index over the part of the table that has this tenant's vectors.
        SELECT v_vectors / greatest(r.reltuples, 1) INTO v_share
        FROM pg_inherits p JOIN pg_index i ON i.indexrelid = p.inhrelid JOIN pg_class r ON r.oid = p.inhrelid
        WHERE p.inhparent = to_regclass(format('embeddings_%s_%s_idx', p_model, p_kind))
          AND i.indrelid = (SELECT e.tableoid FROM embeddings e
                            WHERE e.tenant_id = p_tenant AND e.model_id = p_model AND e.view = 'self' LIMIT 1);
    END IF;
    -- One unit after the other, in the order of distance, until enough hold.
    IF p_kind = 'fact' THEN
        v_holds := 'CROSS JOIN LATERAL ('
            '    SELECT fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, $2, $7) AS sure,'
            '           f.source_trust FROM graph_facts f'
            '    WHERE f.tenant_id = $2 AND f.fact_id = e.owner_id'
            '      AND ($8::uuid[] IS NULL OR f.predicate_id = ANY ($8))'
            '      AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,'
            '                      $2, $6, $7) OFFSET 0) h';
        v_enough := ' AND h.sure >= $9 AND h.sure > 0 AND h.sure * h.source_trust >= $10'
            ' AND ($11 OR NOT is_overruled($2, e.owner_id, $6, $7, $9, $10))';
    ELSIF p_kind = 'note' AND p_known IS NOT NULL THEN
        v_holds := 'CROSS JOIN LATERAL ('
            '    SELECT FROM memory_notes n WHERE n.tenant_id = $2 AND n.note_id = e.owner_id AND n.created_at <= $7'
            '    OFFSET 0) h';
    END IF;
    -- To find one that fits by the index takes as long as to look at fifty, and the longer the fewer fit.
    IF v_share >= 0.05 AND v_vectors > 50 * p_limit / v_share THEN
        -- Here, and not with the function: a session that has met no vector yet does not know these settings.
        PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true),
                set_config('hnsw.ef_search', least(greatest(95, 3 * p_limit / 2), 400)::text, true),
                set_config('hnsw.max_scan_tuples', '40000', true), set_config('enable_sort', 'off', true);
        -- The index has half the bits of each number, the answer all of them.
        IF p_model = 1 AND p_dimensions = 384 AND p_kind = 'note' AND p_known IS NULL THEN
            -- As below, for the model that every installation has: planned once and not each time, which would take a
            -- fifth of the time.
            WITH near AS MATERIALIZED (
                SELECT e.owner_id, e.vector <#> v_query AS distance FROM embeddings e
                WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.view = 'self'
                  AND (p_scope IS NULL OR e.scope = p_scope) AND e.owner_kind = 'note' AND e.model_id = 1
                ORDER BY e.vector::halfvec(384) <#> v_query::halfvec(384) LIMIT p_limit
            )
            SELECT array_agg(n.owner_id ORDER BY n.distance, n.owner_id),
                   array_agg(-n.distance ORDER BY n.distance, n.owner_id)
            INTO v_units, v_cosines FROM near n;
        ELSIF p_model = 1 AND p_dimensions = 384 AND p_kind = 'fact' THEN
            WITH near AS MATERIALIZED (
                SELECT e.owner_id, e.vector <#> v_query AS distance FROM embeddings e
                CROSS JOIN LATERAL (
                    SELECT fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, p_tenant, p_known)
                               AS sure, f.source_trust
                    FROM graph_facts f
                    WHERE f.tenant_id = p_tenant AND f.fact_id = e.owner_id
                      AND (p_relations IS NULL OR f.predicate_id = ANY (p_relations))
                      AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at,
                                      f.retracted_at, p_tenant, v_valid, p_known)
                    OFFSET 0) h
                WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.view = 'self'
                  AND (p_scope IS NULL OR e.scope = p_scope) AND e.owner_kind = 'fact' AND e.model_id = 1
                  AND h.sure >= p_confidence AND h.sure > 0 AND h.sure * h.source_trust >= p_trust
                  AND (p_contradicted
                       OR NOT is_overruled(p_tenant, e.owner_id, v_valid, p_known, p_confidence, p_trust))
                ORDER BY e.vector::halfvec(384) <#> v_query::halfvec(384) LIMIT p_limit
            )
            SELECT array_agg(n.owner_id ORDER BY n.distance, n.owner_id),
                   array_agg(-n.distance ORDER BY n.distance, n.owner_id)
            INTO v_units, v_cosines FROM near n;
        ELSE
            EXECUTE format(
                'WITH near AS MATERIALIZED ('
                '    SELECT e.owner_id, e.vector <#> $1 AS distance FROM embeddings e %2$s'
                '    WHERE %3$s%4$s ORDER BY e.vector::halfvec(%1$s) <#> $1::halfvec(%1$s) LIMIT $5)'
                'SELECT array_agg(n.owner_id ORDER BY n.distance, n.owner_id),'
                '       array_agg(-n.distance ORDER BY n.distance, n.owner_id) FROM near n',
                p_dimensions, v_holds, v_mine, v_enough)
            INTO v_units, v_cosines
            USING v_query, p_tenant, p_project, p_scope, p_limit, v_valid, p_known, p_relations, p_confidence, p_trust,
        p_contradicted;
        END IF;
        IF cardinality(v_units) = p_limit THEN
            RETURN QUERY SELECT u.unit, u.cosine FROM unnest(v_units, v_cosines) u(unit, cosine);
            RETURN;
        END IF;
        -- So little of what was met may be read that the rest is far away: then all is looked through.
    END IF;
    PERFORM set_config('enable_sort', 'on', true);
    IF v_holds = '' THEN
        RETURN QUERY
        SELECT e.owner_id, -(e.vector <#> v_query) FROM embeddings e
        WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.view = 'self'
          AND (p_scope IS NULL OR e.scope = p_scope) AND e.owner_kind = p_kind AND e.model_id = p_model
        ORDER BY e.vector <#> v_query, e.owner_id LIMIT p_limit;
        RETURN;
    END IF;
    RETURN QUERY EXECUTE format(
        'SELECT e.owner_id, -e.distance FROM ('
        '    SELECT e.owner_id, e.vector <#> $1 AS distance FROM embeddings e WHERE %2$s'
        '    ORDER BY 2, 1 OFFSET 0) e %1$s WHERE true%3$s LIMIT $5', v_holds, v_mine, v_enough)
    USING v_query, p_tenant, p_project, p_scope, p_limit, v_valid, p_known, p_relations, p_confidence, p_trust,
        p_contradicted;
END
$$;
