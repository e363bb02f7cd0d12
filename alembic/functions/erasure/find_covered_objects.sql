-- Returns the objects and relationships that a tombstone on an entity in these scopes (NULL: all) covers: objects bound
-- to it or naming it, and relationships that start or end there or name it. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_covered_objects(
    p_tenant text, p_entity uuid, p_scopes text[], OUT objects uuid[], OUT relationships uuid[])
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    v_linked uuid[];
BEGIN
    IF p_scopes IS NULL OR 'project_shared' = ANY (p_scopes) THEN
        v_linked := ARRAY(
            SELECT m.canonical_id FROM object_entity_mentions m
            WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity
            UNION
            SELECT e.object_canonical_id FROM graph_entities e
            WHERE e.tenant_id = p_tenant AND (e.entity_id = p_entity OR e.merged_into = p_entity)
              AND e.object_canonical_id IS NOT NULL);
    END IF;
    objects := ARRAY(
        SELECT DISTINCT v.canonical_id FROM graph_object_versions v
        WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (v_linked));
    relationships := ARRAY(
        SELECT v.canonical_id FROM graph_relationship_versions v
        WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (v_linked)
        UNION
        SELECT r.canonical_id FROM graph_relationships r
        WHERE r.tenant_id = p_tenant AND (r.src_id = ANY (objects) OR r.dst_id = ANY (objects)));
END
$$;
