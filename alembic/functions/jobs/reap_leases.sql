-- Returns jobs of all tenants whose lease has expired to the queue; those without attempts left become dead.
CREATE OR REPLACE FUNCTION reap_leases(p_limit int)
RETURNS TABLE (tenant_id text, job_id uuid, status text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    FOR tenant_id, job_id, status IN
        WITH pick AS (
            SELECT j.tenant_id, j.job_id FROM public.jobs j
            WHERE j.status = 'leased' AND j.lease_expires_at < v_now
            ORDER BY j.lease_expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED)
        UPDATE public.jobs j
        SET status = CASE WHEN j.attempts >= j.max_attempts THEN 'dead' ELSE 'pending' END,
            finished_at = CASE WHEN j.attempts >= j.max_attempts THEN v_now END,
            available_at = v_now, lease_owner = NULL, lease_expires_at = NULL,
            last_error = 'lease_expired: the worker stopped answering'
        FROM pick WHERE j.tenant_id = pick.tenant_id AND j.job_id = pick.job_id
        RETURNING j.tenant_id, j.job_id, j.status
    LOOP
        IF status = 'dead' THEN
            PERFORM public.update_job_subject(tenant_id, job_id);
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
