-- Puts a call of a model on record and adds its cost to the day's; once for a call, however often it is told.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION record_llm_call(
    p_tenant text, p_project text, p_call uuid, p_job uuid, p_purpose text, p_model text, p_input int, p_output int,
    p_succeeded boolean, p_duration_ms int)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET synchronous_commit = off
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    INSERT INTO llm_calls (
        tenant_id, call_id, project_id, job_id, purpose, model, input_tokens, output_tokens, succeeded, duration_ms,
        created_at)
    VALUES (p_tenant, p_call, p_project, p_job, p_purpose, p_model, p_input, p_output, p_succeeded, p_duration_ms,
            v_now)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO llm_usage AS u (tenant_id, project_id, day, model, calls, failures, input_tokens, output_tokens)
    VALUES (p_tenant, p_project, (v_now AT TIME ZONE 'UTC')::date, p_model, 1, (NOT p_succeeded)::int, p_input,
            p_output)
    ON CONFLICT (tenant_id, project_id, day, model) DO UPDATE
    SET calls = u.calls + 1, failures = u.failures + excluded.failures,
        input_tokens = u.input_tokens + excluded.input_tokens, output_tokens = u.output_tokens + excluded.output_tokens;
END
$$;
