-- Gives p_into the names of p_from, which stays as a pointer to it. Runs with the rights of merge_entities.
CREATE OR REPLACE FUNCTION move_names(p_tenant text, p_project text, p_from uuid, p_into uuid, p_now timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    DELETE FROM graph_entity_aliases a
    WHERE a.tenant_id = p_tenant AND a.entity_id = p_from AND (
        EXISTS (SELECT FROM graph_entity_aliases b
                WHERE b.tenant_id = p_tenant AND b.entity_id = p_into AND b.alias_norm = a.alias_norm
                  AND b.user_id = a.user_id)
        OR EXISTS (SELECT FROM graph_entities e
                   WHERE e.tenant_id = p_tenant AND e.entity_id = p_into AND e.canonical_norm = a.alias_norm));
    UPDATE graph_entity_aliases a SET entity_id = p_into WHERE a.tenant_id = p_tenant AND a.entity_id = p_from;
    INSERT INTO graph_entity_aliases (
        tenant_id, alias_id, project_id, entity_id, alias, alias_norm, created_at, user_id)
    SELECT p_tenant, make_id(), p_project, p_into, e.canonical, e.canonical_norm, p_now, e.user_id
    FROM graph_entities e WHERE e.tenant_id = p_tenant AND e.entity_id = p_from
    ON CONFLICT (tenant_id, entity_id, alias_norm, user_id) DO NOTHING;
    UPDATE graph_entities e SET merged_into = p_into, updated_at = p_now
    WHERE e.tenant_id = p_tenant AND (e.entity_id = p_from OR e.merged_into = p_from);
    UPDATE graph_entities e
    SET kind = coalesce(e.kind, o.kind), object_canonical_id = coalesce(e.object_canonical_id, o.object_canonical_id),
        -- The earlier of both, so that reads at a past time find the facts of either.
        created_at = least(e.created_at, o.created_at), updated_at = p_now
    FROM graph_entities o
    WHERE e.tenant_id = p_tenant AND e.entity_id = p_into AND o.tenant_id = p_tenant AND o.entity_id = p_from;
END
$$;
