-- Returns the live facts of two entities that can meet on a timeline once p_from is p_into: all of p_from, and those of
-- p_into with the same predicate, or of the same subject and predicate where it is the object. Runs with the rights of its
-- caller.
CREATE OR REPLACE FUNCTION find_mergeable(p_tenant text, p_project text, p_from uuid, p_into uuid)
RETURNS uuid[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
    RETURN ARRAY(
        WITH moving AS MATERIALIZED (
            SELECT f.fact_id, f.subject_entity_id, f.predicate_id FROM graph_facts f
            WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.retracted_at IS NULL AND f.suppression = 0
              AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from)
        )
        SELECT m.fact_id FROM moving m
        UNION
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.retracted_at IS NULL AND f.suppression = 0
          AND f.subject_entity_id = p_into
          AND f.predicate_id IN (SELECT m.predicate_id FROM moving m WHERE m.subject_entity_id IN (p_from, p_into))
        UNION
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.retracted_at IS NULL AND f.suppression = 0
          AND f.object_entity_id = p_into
          AND (f.subject_entity_id, f.predicate_id) IN (SELECT m.subject_entity_id, m.predicate_id FROM moving m));
END
$$;
