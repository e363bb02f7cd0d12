-- The projects of a tenant (p_project: that one alone) in which deleted memory may be purged, held one after the other,
-- so that nobody issues a tombstone or a hold meanwhile. One in which somebody does so at this moment is left for the next
-- sweep: an erasure may take long. A project whose mutations are frozen keeps what it has.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION swept_projects(p_tenant text, p_project text)
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
