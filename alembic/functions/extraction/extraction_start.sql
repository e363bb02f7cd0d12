-- Where a new note of a project stands: waiting to be extracted, or not, by the project's settings.
CREATE OR REPLACE FUNCTION extraction_start(p_tenant text, p_project text)
RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN CASE WHEN (
        SELECT (p.settings -> 'pipeline' ->> 'enabled')::boolean FROM projects p
        WHERE p.tenant_id = p_tenant AND p.project_id = p_project) THEN 'pending' ELSE 'none' END;
END
$$;
