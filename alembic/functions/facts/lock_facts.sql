-- Locks facts together with their predicates and subjects, in the order in which writers lock them.
-- Raises 40001 when one of the subjects was merged meanwhile. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION lock_facts(p_tenant text, p_facts uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_subjects uuid[];
BEGIN
    PERFORM FROM graph_predicates p
    WHERE p.tenant_id = p_tenant AND p.predicate_id IN (
        SELECT f.predicate_id FROM graph_facts f WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts))
    ORDER BY p.predicate_id FOR KEY SHARE;
    v_subjects := ARRAY(
        SELECT DISTINCT f.subject_entity_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts));
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = p_tenant AND e.entity_id = ANY (v_subjects)
    ORDER BY e.entity_id FOR NO KEY UPDATE;
    PERFORM FROM (SELECT f.subject_entity_id FROM graph_facts f
                  WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts) ORDER BY f.fact_id FOR UPDATE) f
    WHERE f.subject_entity_id <> ALL (v_subjects);
    IF FOUND THEN
        RAISE EXCEPTION 'a subject was merged meanwhile' USING ERRCODE = '40001';
    END IF;
END
$$;
