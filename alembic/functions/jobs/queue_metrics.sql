-- Returns pending, leased and dead jobs of all tenants by kind, and the age of the oldest due one.
-- Contains no tenant ids; each part reads a partial index and never the finished jobs.
CREATE OR REPLACE FUNCTION queue_metrics()
RETURNS TABLE (kind text, status text, jobs bigint, oldest_seconds double precision)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
    RETURN QUERY
    SELECT j.kind, 'pending', count(*), greatest(0, extract(epoch FROM clock_timestamp() - min(j.available_at)))::float8
    FROM public.jobs j WHERE j.status = 'pending' GROUP BY j.kind
    UNION ALL
    SELECT j.kind, 'leased', count(*), NULL::float8 FROM public.jobs j WHERE j.status = 'leased' GROUP BY j.kind
    UNION ALL
    SELECT j.kind, 'dead', count(*), NULL::float8 FROM public.jobs j WHERE j.status = 'dead' GROUP BY j.kind;
END
$$;
