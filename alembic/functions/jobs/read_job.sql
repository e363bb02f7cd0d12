-- Sets the scope and returns one job in the same call, without its payload, which may hold content.
CREATE OR REPLACE FUNCTION read_job(
    p_tenant text, p_project text, p_agent text, p_gardens uuid[], p_reach text, p_user text, p_job uuid)
RETURNS TABLE (
    job_id uuid, project_id text, kind text, status text, priority smallint, attempts int, max_attempts int,
    created_by text, last_error text, created_at timestamptz, available_at timestamptz, started_at timestamptz,
    finished_at timestamptz, result jsonb)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM set_scope(p_tenant, p_project, p_agent, p_gardens, p_reach, p_user);
    RETURN QUERY
    SELECT j.job_id, j.project_id, j.kind, j.status, j.priority, j.attempts, j.max_attempts, j.created_by, j.last_error,
           j.created_at, j.available_at, j.started_at, j.finished_at, j.result
    FROM jobs j WHERE j.tenant_id = p_tenant AND j.job_id = p_job;
END
$$;
