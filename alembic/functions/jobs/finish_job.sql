-- Ends one attempt at a job in the scope of its tenant, and returns whether the caller still held its lease.
-- p_status is completed, failed, dead, or pending with the time of the next attempt; with postponed, the job is pending
-- too and the attempt does not count.
CREATE OR REPLACE FUNCTION finish_job(
    p_tenant text, p_project text, p_job uuid, p_owner text, p_status text, p_error text,
    p_available_at timestamptz)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    PERFORM set_scope(p_tenant, p_project, '', NULL, CASE WHEN p_project IS NULL THEN 'cross_project' ELSE '' END,
                      '*');
    UPDATE jobs j
    SET status = CASE p_status WHEN 'postponed' THEN 'pending' ELSE p_status END, last_error = p_error, lease_owner = NULL, lease_expires_at = NULL,
        available_at = coalesce(p_available_at, j.available_at),
        attempts = CASE WHEN p_status = 'postponed' OR (p_status = 'pending' AND p_error IS NULL) THEN j.attempts - 1
                        ELSE j.attempts END,
        finished_at = CASE WHEN p_status IN ('pending', 'postponed') THEN NULL ELSE v_now END
    WHERE j.tenant_id = p_tenant AND j.job_id = p_job AND j.status = 'leased'
      AND j.lease_owner = p_owner;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF p_status IN ('failed', 'dead') THEN
        PERFORM update_job_subject(p_tenant, p_job);
    END IF;
    RETURN true;
END
$$;
