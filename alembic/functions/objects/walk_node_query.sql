-- Return the statement by which a walk reads nodes: $1 their ids, $2 the limit, $3 the end of each JSON fragment.
-- p_filtered: whether they have to pass the filters of the step. p_as_of: read them as they were recorded then. Every
-- value of a caller in it is a quoted literal.
CREATE OR REPLACE FUNCTION walk_node_query(
    p_tenant text, p_branches uuid[], p_step jsonb, p_time timestamptz, p_as_of timestamptz, p_filtered boolean,
    p_fields jsonb)
RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_clause text := CASE WHEN p_time IS NULL THEN '' ELSE format(
        ' AND coalesce(x.effective_from <= %1$L::timestamptz, true)'
        ' AND coalesce(x.effective_to > %1$L::timestamptz, true)', p_time) END;
BEGIN
    IF p_filtered THEN
        v_clause := v_clause
            || CASE WHEN p_step ? 'node_types' THEN format(' AND x.type = ANY (%L::text[])',
                   ARRAY(SELECT jsonb_array_elements_text(p_step -> 'node_types'))) ELSE '' END
            || CASE WHEN p_step ? 'labels' THEN format(' AND x.labels && %L::text[]',
                   ARRAY(SELECT jsonb_array_elements_text(p_step -> 'labels'))) ELSE '' END
            || filter_clause(p_step -> 'node');
    END IF;
    RETURN format(
        'SELECT array_agg(n.canonical_id), array_agg(n.fragment) FROM ('
        'SELECT n.canonical_id, n.fragment FROM unnest($1) WITH ORDINALITY o(id, place) CROSS JOIN LATERAL ('
        'SELECT x.canonical_id, concat(''{"id":"'', x.canonical_id, ''"''%s, $3) AS fragment '
        'FROM %s AND x.deleted_at IS NULL%s OFFSET 0) n ORDER BY o.place LIMIT $2) n',
        fragment_clause(p_fields),
        CASE WHEN p_as_of IS NULL THEN format(
                'graph_objects x WHERE x.tenant_id = %L AND x.branch_id %s AND x.canonical_id = o.id', p_tenant,
                CASE WHEN cardinality(p_branches) = 1 THEN format('= %L', p_branches[1])
                     ELSE format('= ANY (%L::uuid[])', p_branches) END)
             ELSE format('(%s) x WHERE true', version_query('object', p_tenant, p_branches, 'o.id', p_as_of)) END,
        v_clause);
END
$$;
