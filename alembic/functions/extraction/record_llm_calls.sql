-- Records calls of a model and adds them to the usage of the day; a call that is recorded already is ignored.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION record_llm_calls(p_tenant text, p_project text, p_job uuid, p_model text, p_calls json)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET synchronous_commit = off
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    WITH made AS (
        INSERT INTO llm_calls AS l (
            tenant_id, call_id, project_id, job_id, purpose, model, input_tokens, output_tokens, succeeded,
            duration_ms, created_at)
        SELECT p_tenant, c.call, p_project, p_job, c.purpose, p_model, c.input, c.output, c.succeeded, c.duration, v_now
        FROM json_to_recordset(p_calls)
            AS c(call uuid, purpose text, input int, output int, succeeded boolean, duration int)
        ON CONFLICT DO NOTHING
        RETURNING l.input_tokens, l.output_tokens, l.succeeded
    )
    INSERT INTO llm_usage AS u (tenant_id, project_id, day, model, calls, failures, input_tokens, output_tokens)
    SELECT p_tenant, p_project, (v_now AT TIME ZONE 'UTC')::date, p_model, count(*),
           count(*) FILTER (WHERE NOT m.succeeded), sum(m.input_tokens), sum(m.output_tokens)
    FROM made m HAVING count(*) > 0
    ON CONFLICT (tenant_id, project_id, day, model) DO UPDATE
    SET calls = u.calls + excluded.calls, failures = u.failures + excluded.failures,
        input_tokens = u.input_tokens + excluded.input_tokens, output_tokens = u.output_tokens + excluded.output_tokens;
END
$$;
