-- Queue metrics over all tenants: open, leased and dead jobs by kind, and the age of the oldest due one.
-- Names no tenant.
CREATE OR REPLACE FUNCTION queue_metrics()
RETURNS TABLE (kind text, status text, jobs bigint, oldest_seconds double precision)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
    RETURN QUERY
    SELECT j.kind, j.status, count(*), greatest(0, extract(epoch FROM clock_timestamp() - min(j.available_at)))::float8
    FROM public.jobs j WHERE j.status IN ('pending', 'leased', 'dead') GROUP BY j.kind, j.status;
END
$$;
