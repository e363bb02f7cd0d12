-- Returns the main branches that readers of a project read: the project's, and that of objects without a project.
CREATE OR REPLACE FUNCTION main_branches(p_tenant text, p_project text)
RETURNS uuid[]
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN ARRAY(
        SELECT b.branch_id FROM branches b
        WHERE b.tenant_id = p_tenant AND b.name = 'main' AND (b.project_id = p_project OR b.project_id IS NULL));
END
$$;
