-- Returns the tokens a project has spent in its current budget period. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION spent_tokens(p_tenant text, p_project text, p_period text)
RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT coalesce(sum(u.input_tokens + u.output_tokens), 0)::bigint FROM llm_usage u
        WHERE u.tenant_id = p_tenant AND u.project_id = p_project AND u.day >= budget_period_start(p_period));
END
$$;
