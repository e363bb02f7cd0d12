-- Extends the given leases of a worker and returns those it still holds.
-- A lease that is not given expires, so a job whose end could not be recorded is leased again.
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
