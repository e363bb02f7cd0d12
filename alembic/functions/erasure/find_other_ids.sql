-- Returns the ids that stand for entities, objects and relationships elsewhere: decoys and versions.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_other_ids(
    p_tenant text, p_entities uuid[], p_objects uuid[], p_relationships uuid[])
RETURNS uuid[]
LANGUAGE sql STABLE
AS $$
    SELECT ARRAY(
        SELECT v.version_id FROM graph_object_versions v
        WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (p_objects)
        UNION ALL
        SELECT v.version_id FROM graph_relationship_versions v
        WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (p_relationships)
        UNION ALL
        SELECT e.decoy_id FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND e.entity_id = ANY (p_entities) AND e.decoy_id IS NOT NULL)
$$;
