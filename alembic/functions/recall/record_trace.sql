-- Sets the scope and stores a trace. Runs as the owner, since traces are written once and never changed. Commits
-- without waiting for the disk: a crash may lose a trace.
CREATE OR REPLACE FUNCTION record_trace(
    p_tenant text, p_project text, p_agent text, p_gardens uuid[], p_reach text, p_user text, p_trace uuid, p_key text,
    p_request jsonb, p_context jsonb, p_results jsonb, p_valid timestamptz, p_known timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    -- Set for the transaction, since it is the commit that would wait.
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM set_scope(p_tenant, p_project, p_agent, p_gardens, p_reach, p_user);
    INSERT INTO recall_traces (
        tenant_id, trace_id, project_id, agent_id, key_id, request, context, results, valid_at, as_of, created_at,
        user_id)
    VALUES (p_tenant, p_trace, p_project, p_agent, p_key, p_request,
            p_context || jsonb_build_object('gardens', p_gardens, 'reach', p_reach), p_results,
            coalesce(p_valid, p_known, v_now), coalesce(p_known, v_now), v_now, owner_user());
END
$$;
