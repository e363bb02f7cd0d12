-- Returns a legal hold that forbids to erase these objects and relationships, or NULL: on an entity bound to one of
-- them or named by it, or bound to an end of a relationship; in any project, since an object may belong to none.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_object_hold(p_tenant text, p_objects uuid[], p_relationships uuid[])
RETURNS uuid
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_all uuid[];
BEGIN
    v_all := p_objects || p_relationships || ARRAY(
        SELECT x.id FROM graph_relationships r CROSS JOIN LATERAL (VALUES (r.src_id), (r.dst_id)) x(id)
        WHERE r.tenant_id = p_tenant AND r.canonical_id = ANY (p_relationships));
    RETURN (
        SELECT t.tombstone_id FROM tombstones t
        WHERE t.tenant_id = p_tenant AND t.legal_hold AND (t.scopes IS NULL OR 'project_shared' = ANY (t.scopes))
          AND NOT EXISTS (SELECT FROM tombstone_revocations r
                          WHERE r.tenant_id = p_tenant AND r.tombstone_id = t.tombstone_id)
          AND (EXISTS (SELECT FROM object_entity_mentions m
                       WHERE m.tenant_id = p_tenant AND m.entity_id = t.entity_id AND m.canonical_id = ANY (v_all))
               OR EXISTS (SELECT FROM graph_entities e
                          WHERE e.tenant_id = p_tenant AND e.object_canonical_id = ANY (v_all)
                            AND t.entity_id IN (e.entity_id, e.merged_into)))
        ORDER BY t.created_at LIMIT 1);
END
$$;
