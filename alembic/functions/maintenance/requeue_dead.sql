-- Repair: requeues up to p_limit dead jobs of the scope's project with their attempts reset, and marks them so that no
-- repair requeues them again. Runs as the owner because the targets of jobs may be private. Returns how many.
CREATE OR REPLACE FUNCTION requeue_dead(p_limit int)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_job uuid;
    v_count bigint := 0;
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RAISE EXCEPTION 'requeue_dead needs tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;
    FOR v_job IN SELECT * FROM find_requeuable_jobs(v_tenant, v_project, p_limit) LOOP
        BEGIN
            UPDATE jobs j
            SET status = 'pending', attempts = 0, available_at = v_now, finished_at = NULL, started_at = NULL,
                result = coalesce(j.result, '{}') || jsonb_build_object('requeued_at', v_now)
            WHERE j.tenant_id = v_tenant AND j.job_id = v_job AND j.status = 'dead';
            IF FOUND THEN
                v_count := v_count + 1;
                PERFORM update_job_subject(v_tenant, v_job);
            END IF;
        EXCEPTION WHEN unique_violation THEN
            -- A job with the same key was enqueued concurrently, so this one is not needed.
            NULL;
        END;
    END LOOP;
    RETURN v_count;
END
$$;
