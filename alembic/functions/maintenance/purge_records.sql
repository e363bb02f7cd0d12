-- Retention of operational rows: deletes up to p_limit jobs that ended before p_before (finished_jobs: completed and
-- cancelled; lost_jobs: dead and failed), older calls of models (calls) or older repairs (repairs), in the scope's
-- tenant or project. Returns how many were deleted.
CREATE OR REPLACE FUNCTION purge_records(p_what text, p_before timestamptz, p_limit int)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_count bigint;
BEGIN
    IF v_tenant IS NULL THEN
        RAISE EXCEPTION 'a purge needs a scope with a tenant' USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF p_what = 'finished_jobs' THEN
        WITH pick AS (
            SELECT j.job_id FROM jobs j
            WHERE j.tenant_id = v_tenant AND j.status IN ('completed', 'cancelled') AND j.finished_at < p_before
              AND (v_project IS NULL OR j.project_id = v_project)
            ORDER BY j.finished_at LIMIT p_limit FOR UPDATE SKIP LOCKED
        ) DELETE FROM jobs j USING pick WHERE j.tenant_id = v_tenant AND j.job_id = pick.job_id;
    ELSIF p_what = 'lost_jobs' THEN
        WITH pick AS (
            SELECT j.job_id FROM jobs j
            WHERE j.tenant_id = v_tenant AND j.status IN ('dead', 'failed') AND j.finished_at < p_before
              AND (v_project IS NULL OR j.project_id = v_project)
            ORDER BY j.finished_at LIMIT p_limit FOR UPDATE SKIP LOCKED
        ) DELETE FROM jobs j USING pick WHERE j.tenant_id = v_tenant AND j.job_id = pick.job_id;
    ELSIF p_what = 'calls' THEN
        WITH pick AS (
            SELECT c.call_id FROM llm_calls c
            WHERE c.tenant_id = v_tenant AND c.created_at < p_before AND (v_project IS NULL OR c.project_id = v_project)
            ORDER BY c.created_at LIMIT p_limit FOR UPDATE SKIP LOCKED
        ) DELETE FROM llm_calls c USING pick WHERE c.tenant_id = v_tenant AND c.call_id = pick.call_id;
    ELSIF p_what = 'repairs' THEN
        WITH pick AS (
            SELECT r.repair_id FROM repairs r
            WHERE r.tenant_id = v_tenant AND r.created_at < p_before AND (v_project IS NULL OR r.project_id = v_project)
            ORDER BY r.created_at LIMIT p_limit FOR UPDATE SKIP LOCKED
        ) DELETE FROM repairs r USING pick WHERE r.tenant_id = v_tenant AND r.repair_id = pick.repair_id;
    ELSE
        RAISE EXCEPTION 'unknown kind of rows to purge: %', p_what;
    END IF;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;
