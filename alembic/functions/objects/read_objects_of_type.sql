-- Return ids and properties of live objects of a type in all projects of the tenant, the newest first, before p_after.
-- Of the owner, because a type holds for all projects: the service checks them by a new version of the type.
CREATE OR REPLACE FUNCTION read_objects_of_type(p_type text, p_after uuid, p_limit int)
RETURNS TABLE (canonical_id uuid, properties jsonb)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
BEGIN
    RETURN QUERY
    SELECT x.canonical_id, x.properties FROM branches b
    CROSS JOIN LATERAL (
        SELECT o.canonical_id, o.properties FROM graph_objects o
        WHERE o.tenant_id = v_tenant AND o.branch_id = b.branch_id AND o.type = p_type AND o.deleted_at IS NULL
          AND o.suppression = 0 AND (p_after IS NULL OR o.canonical_id < p_after)
        ORDER BY o.canonical_id DESC LIMIT p_limit) x
    WHERE b.tenant_id = v_tenant
    ORDER BY x.canonical_id DESC LIMIT p_limit;
END
$$;
