-- Returns whether a legal hold keeps something of a user. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION is_user_held(p_tenant text, p_project text, p_user text)
RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM memory_notes n WHERE n.tenant_id = p_tenant AND n.project_id = p_project
                     AND n.user_id = p_user AND n.suppression = 2)
        OR EXISTS (SELECT FROM graph_facts f WHERE f.tenant_id = p_tenant AND f.project_id = p_project
                     AND f.user_id = p_user AND f.suppression = 2)
        OR EXISTS (SELECT FROM graph_entities e WHERE e.tenant_id = p_tenant AND e.project_id = p_project
                     AND e.user_id = p_user AND (e.suppression = 2 OR e.held_scopes IS NOT NULL))
        OR EXISTS (SELECT FROM documents d WHERE d.tenant_id = p_tenant AND d.project_id = p_project
                     AND d.user_id = p_user AND d.user_id <> '' AND d.suppression = 2);
END
$$;
