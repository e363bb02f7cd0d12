-- Return the branches of a name that a walk in a project looks in: the project's, and the one of objects of no project,
-- for objects and for relationships; the latter only where it has any, so that walks do not pay for an empty branch.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION walk_branches(
    p_tenant text, p_project text, p_name text, OUT objects uuid[], OUT relationships uuid[])
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_own uuid;
    v_shared uuid;
BEGIN
    SELECT b.branch_id INTO v_own FROM branches b
    WHERE b.tenant_id = p_tenant AND b.project_id = p_project AND b.name = p_name;
    SELECT b.branch_id INTO v_shared FROM branches b
    WHERE b.tenant_id = p_tenant AND b.project_id IS NULL AND b.name = p_name;
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
