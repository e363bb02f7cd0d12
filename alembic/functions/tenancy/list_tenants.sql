-- Returns a page of all tenants by tenant_id, for the platform key and the command line.
CREATE OR REPLACE FUNCTION list_tenants(p_after text, p_limit int)
RETURNS TABLE (tenant_id text, name text, created_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
    RETURN QUERY
    SELECT t.tenant_id, t.name, t.created_at FROM public.tenants t
    WHERE t.tenant_id > coalesce(p_after, '') ORDER BY t.tenant_id LIMIT p_limit;
END
$$;
