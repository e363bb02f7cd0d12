-- Return the first of some types that is neither registered, by the tenant or the installation, nor used by a live row
-- (with p_past also by a deleted one) on these branches; NULL when all are known. p_kind: object or relationship. Runs
-- with the rights of its caller.
CREATE OR REPLACE FUNCTION find_unknown_type(
    p_tenant text, p_branches uuid[], p_kind text, p_types text[], p_past boolean)
RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_type text;
BEGIN
    FOREACH v_type IN ARRAY p_types LOOP
        IF p_kind = 'object' THEN
            CONTINUE WHEN EXISTS (SELECT FROM object_type_schemas s WHERE s.tenant_id = p_tenant AND s.type = v_type);
            CONTINUE WHEN EXISTS (SELECT FROM global_object_type_schemas s WHERE s.type = v_type);
            CONTINUE WHEN EXISTS (
                SELECT FROM graph_objects x WHERE x.tenant_id = p_tenant AND x.branch_id = ANY (p_branches)
                    AND x.type = v_type AND (p_past OR x.deleted_at IS NULL));
        ELSE
            CONTINUE WHEN EXISTS (
                SELECT FROM relationship_type_schemas s WHERE s.tenant_id = p_tenant AND s.type = v_type);
            CONTINUE WHEN EXISTS (SELECT FROM global_relationship_type_schemas s WHERE s.type = v_type);
            CONTINUE WHEN EXISTS (
                SELECT FROM graph_relationships x WHERE x.tenant_id = p_tenant AND x.branch_id = ANY (p_branches)
                    AND x.type = v_type AND (p_past OR x.deleted_at IS NULL));
        END IF;
        RETURN v_type;
    END LOOP;
    RETURN NULL;
END
$$;
