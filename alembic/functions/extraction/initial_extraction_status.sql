-- Returns the extraction status of a new note: 'pending' where the project has extraction enabled, else 'none'.
CREATE OR REPLACE FUNCTION initial_extraction_status(p_tenant text, p_project text)
RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN CASE WHEN (
        SELECT (p.settings -> 'pipeline' ->> 'enabled')::boolean FROM projects p
        WHERE p.tenant_id = p_tenant AND p.project_id = p_project) THEN 'pending' ELSE 'none' END;
END
$$;
