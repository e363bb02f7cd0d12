-- Returns the end users that have rows in a project, by id, with what each has, counted up to a limit, and when something
-- of theirs was last written. Goes from one user to the next by the indexes, however many rows each has. Runs with the
-- rights of its caller, who sees one user or all of them.
CREATE OR REPLACE FUNCTION list_users(p_tenant text, p_project text, p_after text, p_only text, p_limit int, p_most int)
RETURNS TABLE (
    user_id text, notes bigint, facts bigint, entities bigint, documents bigint, threads bigint,
    last_activity timestamptz)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_user text := coalesce(p_after, '');
BEGIN
    FOR v_number IN 1 .. p_limit LOOP
        IF p_only IS NOT NULL THEN
            EXIT WHEN v_number > 1;
            v_user := p_only;
        ELSE
            SELECT min(x.user_id) INTO v_user FROM (
                (SELECT n.user_id FROM memory_notes n
                 WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND n.user_id > v_user
                   AND n.deleted_at IS NULL
                 ORDER BY n.user_id LIMIT 1)
                UNION ALL
                (SELECT f.user_id FROM graph_facts f
                 WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.user_id > v_user
                 ORDER BY f.user_id LIMIT 1)
                UNION ALL
                (SELECT e.user_id FROM graph_entities e
                 WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.user_id > v_user
                 ORDER BY e.user_id LIMIT 1)
                UNION ALL
                (SELECT d.user_id FROM documents d
                 WHERE d.tenant_id = p_tenant AND d.project_id = p_project AND d.user_id > v_user
                   AND d.deleted_at IS NULL AND d.user_id <> ''
                 ORDER BY d.user_id LIMIT 1)
            ) x;
        END IF;
        EXIT WHEN v_user IS NULL;
        RETURN QUERY
        SELECT v_user,
               (SELECT count(*) FROM (
                   SELECT FROM memory_notes n WHERE n.tenant_id = p_tenant AND n.project_id = p_project
                     AND n.user_id = v_user AND n.deleted_at IS NULL LIMIT p_most) c),
               (SELECT count(*) FROM (
                   SELECT FROM graph_facts f WHERE f.tenant_id = p_tenant AND f.project_id = p_project
                     AND f.user_id = v_user AND f.retracted_at IS NULL LIMIT p_most) c),
               (SELECT count(*) FROM (
                   SELECT FROM graph_entities e WHERE e.tenant_id = p_tenant AND e.project_id = p_project
                     AND e.user_id = v_user AND e.merged_into IS NULL LIMIT p_most) c),
               (SELECT count(*) FROM (
                   SELECT FROM documents d WHERE d.tenant_id = p_tenant AND d.project_id = p_project
                     AND d.user_id = v_user AND d.user_id <> '' AND d.deleted_at IS NULL LIMIT p_most) c),
               (SELECT count(*) FROM (
                   SELECT DISTINCT n.thread_id FROM memory_notes n WHERE n.tenant_id = p_tenant
                     AND n.project_id = p_project AND n.user_id = v_user AND n.deleted_at IS NULL
                     AND n.thread_id IS NOT NULL LIMIT p_most) c),
               greatest(
                   (SELECT max(n.created_at) FROM memory_notes n WHERE n.tenant_id = p_tenant
                      AND n.project_id = p_project AND n.user_id = v_user),
                   (SELECT max(f.created_at) FROM graph_facts f WHERE f.tenant_id = p_tenant
                      AND f.project_id = p_project AND f.user_id = v_user),
                   (SELECT max(e.created_at) FROM graph_entities e WHERE e.tenant_id = p_tenant
                      AND e.project_id = p_project AND e.user_id = v_user),
                   (SELECT max(d.created_at) FROM documents d WHERE d.tenant_id = p_tenant
                      AND d.project_id = p_project AND d.user_id = v_user AND d.user_id <> ''));
    END LOOP;
END
$$;
