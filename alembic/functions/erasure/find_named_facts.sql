-- Returns the facts of these scopes (NULL: all) that name an entity in their value, or whose subject or object is
-- another entity with the same name as search spells it (see name_key), beside the facts of the entity itself. Runs
-- with the rights of its caller.
CREATE OR REPLACE FUNCTION find_named_facts(
    p_tenant text, p_project text, p_entity uuid, p_scopes text[], p_all boolean)
RETURNS uuid[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_certain text;
    v_names text[];
    v_candidates uuid[];
BEGIN
    SELECT p.certain INTO v_certain FROM name_patterns(p_tenant, p_entity) p;
    SELECT n.names INTO v_names FROM find_names(p_tenant, p_entity) n;
    IF NOT p_all THEN
        v_candidates := find_candidates(p_tenant, p_project, 'fact', v_names);
    END IF;
    RETURN ARRAY(
        SELECT f.fact_id FROM graph_facts f
        JOIN graph_entities s ON s.tenant_id = p_tenant AND s.entity_id = f.subject_entity_id
        LEFT JOIN graph_entities o ON o.tenant_id = p_tenant AND o.entity_id = f.object_entity_id
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND (p_scopes IS NULL OR f.scope = ANY (p_scopes))
          AND (v_candidates IS NULL OR f.fact_id = ANY (v_candidates))
          AND f.subject_entity_id <> p_entity AND f.object_entity_id IS DISTINCT FROM p_entity
          AND (fold_name(f.object_value) ~ v_certain
               OR name_key(s.canonical) = ANY (v_names) OR name_key(o.canonical) = ANY (v_names))
        UNION
        -- Only the beginning of a value is indexed (see fact_terms).
        SELECT f.fact_id FROM graph_facts f
        WHERE v_candidates IS NOT NULL AND f.tenant_id = p_tenant AND f.project_id = p_project
          AND (p_scopes IS NULL OR f.scope = ANY (p_scopes)) AND octet_length(f.object_value) > 20000
          AND f.subject_entity_id <> p_entity AND fold_name(f.object_value) ~ v_certain);
END
$$;
