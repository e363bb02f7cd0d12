-- Return the statement for the version of an object or relationship (p_kind) that was recorded at a time, with the
-- columns of a head: p_id is the SQL expression for its canonical id. Every value of a caller is a quoted literal.
CREATE OR REPLACE FUNCTION version_query(
    p_kind text, p_tenant text, p_branches uuid[], p_id text, p_as_of timestamptz)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_table text := format('graph_%s_versions', p_kind);
BEGIN
    RETURN format(
        'SELECT v.canonical_id, v.version, v.type, %s, v.evidence, v.properties, v.deleted_at, '
        '(SELECT f.created_at FROM %I f WHERE f.tenant_id = %L AND f.version_id = v.canonical_id) AS created_at, '
        'v.created_at AS updated_at FROM %I v '
        'WHERE v.tenant_id = %L AND v.branch_id = ANY (%L::uuid[]) AND v.canonical_id = %s '
        'AND v.created_at <= %L::timestamptz ORDER BY v.version DESC LIMIT 1',
        CASE p_kind
            WHEN 'object'
                THEN 'v.subtype, v.key, v.title, v.status, v.labels, v.effective_from, v.effective_to'
            ELSE 'v.src_id, v.dst_id, v.weight, v.role_src, v.role_dst, v.valid_from, v.valid_to'
        END,
        v_table, p_tenant, v_table, p_tenant, p_branches, p_id, p_as_of);
END
$$;
