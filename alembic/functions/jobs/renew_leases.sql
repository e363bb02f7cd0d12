-- Heartbeat: extends the leases a worker names, across tenants, and answers which of them it still holds. A lease it
-- does not name runs out: that is how a job whose end could not be recorded comes back.
CREATE OR REPLACE FUNCTION renew_leases(p_tenants text[], p_jobs uuid[], p_owners text[], p_lease interval)
RETURNS TABLE (job_id uuid, lease_owner text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
    SET LOCAL synchronous_commit = off;
    RETURN QUERY
    UPDATE public.jobs j SET lease_expires_at = clock_timestamp() + p_lease
    FROM unnest(p_tenants, p_jobs, p_owners) AS held (tenant_id, job_id, lease_owner)
    WHERE j.tenant_id = held.tenant_id AND j.job_id = held.job_id AND j.lease_owner = held.lease_owner
      AND j.status = 'leased'
    RETURNING j.job_id, j.lease_owner;
END
$$;
