-- Sets the five settings that every row-level policy reads, for this transaction only.
-- SET LOCAL instead of set_config, because on a distributed PostgreSQL only the former reaches the shards.
CREATE OR REPLACE FUNCTION set_scope(p_tenant text, p_project text, p_agent text, p_gardens uuid[], p_reach text)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    EXECUTE format(
        'SET LOCAL app.tenant_id = %L; SET LOCAL app.project_id = %L; SET LOCAL app.agent_id = %L; '
        'SET LOCAL app.gardens = %L; SET LOCAL app.reach = %L',
        coalesce(p_tenant, ''), coalesce(p_project, ''), coalesce(p_agent, ''),
        coalesce(p_gardens, '{}'), coalesce(p_reach, ''));
END
$$;
