-- Sets the six settings that every row-level policy reads, for this transaction only. p_user is an end user's id, '*'
-- for every user, or '' for what all users share.
-- SET LOCAL instead of set_config, because on a distributed PostgreSQL only the former reaches the shards.
CREATE OR REPLACE FUNCTION set_scope(
    p_tenant text, p_project text, p_agent text, p_gardens uuid[], p_reach text, p_user text DEFAULT '')
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    EXECUTE format(
        'SET LOCAL app.tenant_id = %L; SET LOCAL app.project_id = %L; SET LOCAL app.agent_id = %L; '
        'SET LOCAL app.gardens = %L; SET LOCAL app.reach = %L; SET LOCAL app.user_id = %L',
        coalesce(p_tenant, ''), coalesce(p_project, ''), coalesce(p_agent, ''),
        coalesce(p_gardens, '{}'), coalesce(p_reach, ''), coalesce(p_user, ''));
END
$$;
