-- The main branches that a reader of a project reads: its own, and that of what belongs to no project. Makes none.
-- Runs with the rights of its caller.
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
