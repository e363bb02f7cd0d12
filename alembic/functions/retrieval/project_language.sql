-- Returns the text search configuration of a project; English by default. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION project_language(p_tenant text, p_project text)
RETURNS regconfig
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN coalesce((
        SELECT p.settings ->> 'language' FROM projects p
        WHERE p.tenant_id = p_tenant AND p.project_id = p_project), 'english')::regconfig;
END
$$;
