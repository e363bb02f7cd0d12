-- Returns the suppression of objects and relationships by the tombstones of entities that are bound to them or that
-- they name: 1 hidden from everyone, 2 by a legal hold, 0 visible. They have no scope: what hides a project's shared
-- memory hides them. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION object_levels(p_tenant text, p_ids uuid[])
RETURNS TABLE (id uuid, level smallint)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT i.id, CASE WHEN bool_or(h.level = 1) THEN 1 WHEN bool_or(h.level = 2) THEN 2 ELSE 0 END::smallint
    FROM (SELECT DISTINCT u.id FROM unnest(p_ids) u(id)) i
    LEFT JOIN LATERAL (
        SELECT hidden_level(e.erased_scopes, e.held_scopes, 'project_shared') AS level FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND e.object_canonical_id = i.id
        UNION ALL
        SELECT hidden_level(e.erased_scopes, e.held_scopes, 'project_shared') FROM object_entity_mentions m
        JOIN graph_entities e ON e.tenant_id = p_tenant AND e.entity_id = m.entity_id
        WHERE m.tenant_id = p_tenant AND m.canonical_id = i.id
    ) h ON true
    GROUP BY i.id;
END
$$;
