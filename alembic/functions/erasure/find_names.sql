-- Returns an entity with those merged into it, and all their names as name_key compares them.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_names(p_tenant text, p_entity uuid, OUT entities uuid[], OUT names text[])
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
BEGIN
    entities := ARRAY(
        SELECT e.entity_id FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND (e.entity_id = p_entity OR e.merged_into = p_entity));
    names := ARRAY(
        SELECT DISTINCT name_key(n.name)
        FROM (
            SELECT unnest(ARRAY[e.canonical, e.canonical_norm]) AS name FROM graph_entities e
            WHERE e.tenant_id = p_tenant AND e.entity_id = ANY (entities)
            UNION ALL
            SELECT unnest(ARRAY[a.alias, a.alias_norm]) FROM graph_entity_aliases a
            WHERE a.tenant_id = p_tenant AND a.entity_id = ANY (entities)
        ) n
        WHERE name_key(n.name) <> '');
END
$$;
