-- Whether another value of the same belief is preferred to a shared fact of another project (see is_overruled). Runs as
-- the owner, since conflicts of other projects are hidden; the values it compares are all shared.
CREATE OR REPLACE FUNCTION is_shared_overruled(p_fact uuid, p_valid timestamptz)
RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
BEGIN
    IF current_setting('app.reach', true) IS DISTINCT FROM 'shared' OR NOT EXISTS (
        SELECT FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.fact_id = p_fact AND is_shared(f.scope, f.garden_id, f.user_id, f.suppression)) THEN
        RETURN false;
    END IF;
    RETURN is_overruled(v_tenant, p_fact, p_valid, NULL, 0, 0);
END
$$;
