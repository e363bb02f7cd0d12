-- Returns the entities that an id or a normalised name or alias refers to, as far as they were known at the context's
-- time and are visible. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_start_entities(p_context read_context, p_entity uuid, p_name text)
RETURNS uuid[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_tenant text := p_context.tenant_id;
    v_project text := p_context.project_id;
    v_roots uuid[];
BEGIN
    IF p_entity IS NOT NULL THEN
        v_roots := ARRAY(
            SELECT coalesce(e.merged_into, e.entity_id) FROM graph_entities e
            WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.entity_id = p_entity);
    ELSE
        v_roots := ARRAY(SELECT named_entities(v_tenant, v_project, p_name));
    END IF;
    RETURN ARRAY(
        SELECT e.entity_id FROM unnest(v_roots) u(id)
        CROSS JOIN LATERAL (
            SELECT x.entity_id FROM graph_entities x
            WHERE x.tenant_id = v_tenant AND x.entity_id = u.id
              AND (p_context.known_at IS NULL OR x.created_at <= p_context.known_at)
            OFFSET 0) e);
END
$$;
