-- Whether a legal hold keeps a fact as it is, whatever else hides it. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION is_held(p_tenant text, p_fact uuid)
RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT EXISTS (
        SELECT FROM graph_facts f
        JOIN graph_entities e ON e.tenant_id = p_tenant AND e.entity_id IN (f.subject_entity_id, f.object_entity_id)
        WHERE f.tenant_id = p_tenant AND f.fact_id = p_fact AND f.scope = ANY (e.held_scopes))
$$;
