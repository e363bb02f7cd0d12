-- Repair: releases up to p_limit expired leases of the scope's project as the reaper does. Returns how many.
CREATE OR REPLACE FUNCTION release_leases(p_limit int)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_count bigint := 0;
    v_job record;
BEGIN
    FOR v_job IN WITH pick AS (
        SELECT j.job_id FROM jobs j
        WHERE j.tenant_id = v_tenant AND j.project_id = v_project AND j.status = 'leased'
          AND j.lease_expires_at < v_now
        ORDER BY j.lease_expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED)
    UPDATE jobs j
    SET status = CASE WHEN j.attempts >= j.max_attempts THEN 'dead' ELSE 'pending' END,
        finished_at = CASE WHEN j.attempts >= j.max_attempts THEN v_now END,
        available_at = v_now, lease_owner = NULL, lease_expires_at = NULL,
        last_error = 'lease_expired: the worker stopped answering'
    FROM pick WHERE j.tenant_id = v_tenant AND j.job_id = pick.job_id
    RETURNING j.job_id, j.status LOOP
        v_count := v_count + 1;
        IF v_job.status = 'dead' THEN
            PERFORM update_job_subject(v_tenant, v_job.job_id);
        END IF;
    END LOOP;
    RETURN v_count;
END
$$;
