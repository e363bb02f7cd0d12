-- Return whether other projects of the tenant have live objects (p_kind object) or relationships of a type. Of the
-- owner, since the caller may not see them; it returns nothing else of them.
CREATE OR REPLACE FUNCTION type_used_elsewhere(p_kind text, p_type text)
RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
BEGIN
    RETURN EXISTS (
        SELECT FROM branches b
        CROSS JOIN LATERAL (
            SELECT FROM graph_objects o
            WHERE p_kind = 'object' AND o.tenant_id = v_tenant AND o.branch_id = b.branch_id AND o.type = p_type
              AND o.deleted_at IS NULL AND o.project_id IS DISTINCT FROM v_project LIMIT 1) x
        WHERE b.tenant_id = v_tenant)
    OR EXISTS (
        SELECT FROM branches b
        CROSS JOIN LATERAL (
            SELECT FROM graph_relationships r
            WHERE p_kind = 'relationship' AND r.tenant_id = v_tenant AND r.branch_id = b.branch_id AND r.type = p_type
              AND r.deleted_at IS NULL AND r.project_id IS DISTINCT FROM v_project LIMIT 1) x
        WHERE b.tenant_id = v_tenant);
END
$$;
