-- Locks and returns the projects of a tenant (only p_project if given) in which rows may be purged, so that no tombstone
-- or hold is issued meanwhile. Skips projects that are locked, because an erasure may take long, and frozen ones.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION lock_purgeable_projects(p_tenant text, p_project text)
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF p_tenant IS NULL THEN
        RAISE EXCEPTION 'a purge needs a scope with a tenant' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN QUERY
    SELECT p.project_id FROM projects p
    WHERE p.tenant_id = p_tenant AND (p_project IS NULL OR p.project_id = p_project)
      AND coalesce((p.settings #>> '{pipeline,mutations_frozen}')::boolean, false) = false
    ORDER BY p.project_id FOR NO KEY UPDATE SKIP LOCKED;
END
$$;
