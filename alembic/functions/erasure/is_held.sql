-- Whether a legal hold keeps a fact as it is, whatever else hides it. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION is_held(p_tenant text, p_fact uuid)
RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT EXISTS (
        SELECT FROM graph_facts f
        JOIN graph_entities e ON e.tenant_id = p_tenant AND e.entity_id IN (
            SELECT f.subject_entity_id UNION ALL SELECT f.object_entity_id UNION ALL
            SELECT m.entity_id FROM graph_fact_mentions m WHERE m.tenant_id = p_tenant AND m.fact_id = p_fact)
        WHERE f.tenant_id = p_tenant AND f.fact_id = p_fact AND f.scope = ANY (e.held_scopes))
$$;
