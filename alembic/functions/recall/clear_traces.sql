-- Deletes up to p_limit traces of the tenant that are older than their project keeps them (p_days by default); returns
-- how many.
CREATE OR REPLACE FUNCTION clear_traces(p_days int, p_limit int)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_count bigint;
BEGIN
    DELETE FROM recall_traces t WHERE t.tenant_id = v_tenant AND t.trace_id IN (
        SELECT x.trace_id FROM recall_traces x
        JOIN projects p ON p.tenant_id = v_tenant AND p.project_id = x.project_id
        WHERE x.tenant_id = v_tenant
          AND x.created_at < clock_timestamp()
              - make_interval(days => coalesce((p.settings ->> 'trace_days')::int, p_days))
        ORDER BY x.created_at LIMIT p_limit);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;
