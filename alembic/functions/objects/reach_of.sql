-- Where a walk in a project looks: the main branch of the project, and that of the tenant where it has anything, first
-- for objects and then for relationships, so that nobody pays for looking where nothing is.
CREATE OR REPLACE FUNCTION reach_of(p_tenant text, p_project text, OUT objects uuid[], OUT relationships uuid[])
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_own uuid;
    v_shared uuid;
BEGIN
    SELECT b.branch_id INTO v_own FROM branches b
    WHERE b.tenant_id = p_tenant AND b.project_id = p_project AND b.name = 'main';
    SELECT b.branch_id INTO v_shared FROM branches b
    WHERE b.tenant_id = p_tenant AND b.project_id IS NULL AND b.name = 'main';
    objects := array_remove(ARRAY[v_own], NULL);
    relationships := objects;
    IF EXISTS (SELECT FROM graph_objects x WHERE x.tenant_id = p_tenant AND x.branch_id = v_shared) THEN
        objects := objects || v_shared;
        IF EXISTS (SELECT FROM graph_relationships x WHERE x.tenant_id = p_tenant AND x.branch_id = v_shared) THEN
            relationships := relationships || v_shared;
        END IF;
    END IF;
END
$$;
