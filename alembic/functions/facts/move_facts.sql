-- Moves the facts and edges of p_from to p_into with their search terms, in one write of each row, and records the
-- conflicts that this makes. Returns the facts that were moved, hidden ones included. Runs with the rights of
-- merge_entities.
CREATE OR REPLACE FUNCTION move_facts(p_tenant text, p_project text, p_from uuid, p_into uuid, p_now timestamptz)
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
SET jit = off
AS $$
DECLARE
    v_language regconfig := project_language(p_tenant, p_project);
    v_values uuid[];
    v_moved uuid[];
BEGIN
    -- Plain values that were on two entities, or were extended, may contradict others now.
    v_values := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        JOIN graph_predicates p ON p.tenant_id = p_tenant AND p.predicate_id = f.predicate_id AND p.status = 'pending'
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.object_value IS NOT NULL
          AND f.retracted_at IS NULL AND f.suppression = 0
          AND (f.subject_entity_id = p_from OR (f.subject_entity_id = p_into AND f.closed_at = p_now)));
    v_moved := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project
          AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from));
    UPDATE graph_facts f
    SET subject_entity_id = CASE f.subject_entity_id WHEN p_from THEN p_into ELSE f.subject_entity_id END,
        object_entity_id = CASE f.object_entity_id WHEN p_from THEN p_into ELSE f.object_entity_id END,
        object_hash = CASE f.object_entity_id WHEN p_from THEN sha256(uuid_send(p_into)) ELSE f.object_hash END,
        terms = fact_terms(
            v_language,
            (SELECT e.canonical FROM graph_entities e WHERE e.tenant_id = p_tenant
               AND e.entity_id = CASE f.subject_entity_id WHEN p_from THEN p_into ELSE f.subject_entity_id END),
            (SELECT p.canonical FROM graph_predicates p
             WHERE p.tenant_id = p_tenant AND p.predicate_id = f.predicate_id),
            coalesce((SELECT e.canonical FROM graph_entities e WHERE e.tenant_id = p_tenant
                        AND e.entity_id = CASE f.object_entity_id WHEN p_from THEN p_into ELSE f.object_entity_id END),
                     f.object_value)),
        updated_at = p_now
    WHERE f.tenant_id = p_tenant AND f.project_id = p_project
      AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from);
    -- Values that are in a conflict already need no more pairs to be compared: see is_overruled.
    IF cardinality(v_values) > 1000 THEN
        v_values := ARRAY(
            SELECT u.fact_id FROM unnest(v_values) u(fact_id)
            WHERE NOT EXISTS (SELECT FROM fact_conflicts c
                              WHERE c.tenant_id = p_tenant AND c.fact_a = u.fact_id AND c.status = 'open')
              AND NOT EXISTS (SELECT FROM fact_conflicts c
                              WHERE c.tenant_id = p_tenant AND c.fact_b = u.fact_id AND c.status = 'open'));
    END IF;
    PERFORM record_conflicts(p_tenant, p_project, v_values, array_fill(p_now, ARRAY[cardinality(v_values)]));
    UPDATE entity_edges x
    SET subject_entity_id = CASE x.subject_entity_id WHEN p_from THEN p_into ELSE x.subject_entity_id END,
        object_entity_id = CASE x.object_entity_id WHEN p_from THEN p_into ELSE x.object_entity_id END
    WHERE x.tenant_id = p_tenant AND x.project_id = p_project
      AND (x.subject_entity_id = p_from OR x.object_entity_id = p_from);
    RETURN v_moved;
END
$$;
