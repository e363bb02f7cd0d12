-- Return the source of the edges x with the node f at one end (p_end: src_id or dst_id) on a branch: the heads, or with
-- p_as_of what was recorded of them then. Heads that are deleted by now are read through an index of their own. Every
-- value of a caller in it is a quoted literal.
CREATE OR REPLACE FUNCTION edge_source(p_tenant text, p_branch uuid, p_end text, p_as_of timestamptz)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_heads text := format('x.tenant_id = %L AND x.branch_id = %L AND x.%I = f.id', p_tenant, p_branch, p_end);
BEGIN
    IF p_as_of IS NULL THEN
        RETURN format('graph_relationships x WHERE %s', v_heads);
    END IF;
    RETURN format(
        '(SELECT x.canonical_id FROM graph_relationships x WHERE %1$s AND x.deleted_at IS NULL UNION ALL '
        'SELECT x.canonical_id FROM graph_relationships x WHERE %1$s AND x.deleted_at IS NOT NULL) h '
        'CROSS JOIN LATERAL (%2$s) x WHERE true',
        v_heads, version_query('relationship', p_tenant, ARRAY[p_branch], 'h.canonical_id', p_as_of));
END
$$;
