-- Queues the job that counts the terms of a project again, in two seconds: what is hidden in a row is counted once. Runs
-- with the rights of its caller.
CREATE OR REPLACE FUNCTION queue_recount(p_tenant text, p_project text)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    -- A job of the whole tenant, so that agents cannot see that something was hidden. A running job may have counted
    -- before this change.
    INSERT INTO jobs (tenant_id, job_id, kind, payload, created_by, available_at, created_at)
    SELECT p_tenant, make_id(), 'recount', jsonb_build_object('project_id', p_project), 'schedule',
           v_now + interval '2 seconds', v_now
    WHERE NOT EXISTS (
        SELECT FROM jobs j
        WHERE j.tenant_id = p_tenant AND j.kind = 'recount' AND j.status = 'pending'
          AND j.payload ->> 'project_id' = p_project);
END
$$;
