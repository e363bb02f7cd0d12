-- Return the two statements by which a walk follows edges from the nodes $1: `follow` returns the heaviest
-- p_edges_per_node of each, p_limit in all, and `beyond` whether one of the nodes has more. NULL where there is no
-- branch to look in. p_as_of: follow edges as they were recorded then. Every value of a caller in them is a quoted
-- literal.
CREATE OR REPLACE FUNCTION walk_edge_queries(
    p_tenant text, p_branches uuid[], p_step jsonb, p_time timestamptz, p_as_of timestamptz,
    p_edges_per_node int, p_limit int, OUT follow text, OUT beyond text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_direction text := p_step ->> 'direction';
    v_clause text := CASE WHEN p_step ? 'edge_types' THEN format(' AND x.type = ANY (%L::text[])',
            ARRAY(SELECT jsonb_array_elements_text(p_step -> 'edge_types'))) ELSE '' END
        || CASE WHEN p_time IS NULL THEN '' ELSE format(
            ' AND coalesce(x.valid_from <= %1$L::timestamptz, true)'
            ' AND coalesce(x.valid_to > %1$L::timestamptz, true)', p_time) END
        || filter_clause(p_step -> 'edge');
    -- One for each branch and direction, each in the order of one index.
    v_parts text[] := '{}';
    v_branch uuid;
    v_edges text;
BEGIN
    FOREACH v_branch IN ARRAY p_branches LOOP
        IF v_direction <> 'in' THEN
            v_parts := v_parts || format(
                '(SELECT x.canonical_id, x.dst_id AS to_id, true AS forward, x.type, x.weight '
                'FROM %s AND x.deleted_at IS NULL%s ORDER BY x.weight DESC NULLS LAST, x.canonical_id DESC LIMIT %s)',
                edge_source(p_tenant, v_branch, 'src_id', p_as_of), v_clause, p_edges_per_node + 1);
        END IF;
        IF v_direction <> 'out' THEN
            v_parts := v_parts || format(
                '(SELECT x.canonical_id, x.src_id AS to_id, false AS forward, x.type, x.weight '
                'FROM %s AND x.deleted_at IS NULL%s%s '
                'ORDER BY x.weight DESC NULLS LAST, x.canonical_id DESC LIMIT %s)',
                edge_source(p_tenant, v_branch, 'dst_id', p_as_of), v_clause,
                CASE WHEN v_direction = 'both' THEN ' AND x.src_id <> x.dst_id' ELSE '' END, p_edges_per_node + 1);
        END IF;
    END LOOP;
    IF v_parts = '{}' THEN
        RETURN;
    END IF;
    v_edges := format('(SELECT u.* FROM (%s) u ORDER BY u.weight DESC NULLS LAST, u.canonical_id DESC',
                      array_to_string(v_parts, ' UNION ALL '));
    follow := format(
        'SELECT array_agg(c.canonical_id), array_agg(c.id), array_agg(c.to_id), array_agg(c.forward), '
        'array_agg(c.type), array_agg(c.weight) FROM ('
        'SELECT e.*, f.id FROM unnest($1) f(id) CROSS JOIN LATERAL %s LIMIT %s) e LIMIT %s) c',
        v_edges, p_edges_per_node, p_limit);
    beyond := format(
        'SELECT EXISTS (SELECT FROM unnest($1) f(id) CROSS JOIN LATERAL %s OFFSET %s LIMIT 1) e)',
        v_edges, p_edges_per_node);
END
$$;
