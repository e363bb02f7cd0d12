-- Heartbeat: extends every lease a worker still holds, across tenants, and answers which those are.
CREATE OR REPLACE FUNCTION renew_leases(p_worker text, p_lease interval)
RETURNS TABLE (tenant_id text, job_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
    SET LOCAL synchronous_commit = off;
    RETURN QUERY
    UPDATE public.jobs j SET lease_expires_at = clock_timestamp() + p_lease
    WHERE j.status = 'leased' AND j.lease_owner = p_worker
    RETURNING j.tenant_id, j.job_id;
END
$$;
