-- Returns the branch `main` of a project, or with NULL that of objects without a project, and creates it when missing.
-- Runs as the owner, since a project gets its branch before a scope can name it. NULL for an unknown project.
CREATE OR REPLACE FUNCTION ensure_main_branch(p_project text)
RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_branch uuid;
BEGIN
    SELECT b.branch_id INTO v_branch FROM branches b
    WHERE b.tenant_id = v_tenant AND b.name = 'main' AND b.project_id IS NOT DISTINCT FROM p_project;
    IF v_branch IS NULL AND v_tenant IS NOT NULL
       AND (p_project IS NULL
            OR EXISTS (SELECT FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = p_project)) THEN
        INSERT INTO branches (tenant_id, branch_id, project_id, name, created_at)
        VALUES (v_tenant, make_id(), p_project, 'main', clock_timestamp())
        ON CONFLICT DO NOTHING;
        SELECT b.branch_id INTO v_branch FROM branches b
        WHERE b.tenant_id = v_tenant AND b.name = 'main' AND b.project_id IS NOT DISTINCT FROM p_project;
    END IF;
    RETURN v_branch;
END
$$;
