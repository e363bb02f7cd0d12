-- Records which other plain values these facts contradict: those of the same subject, predicate, scope and owner with
-- overlapping times, while the predicate is pending. At most 20 for each fact, the latest first.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION record_conflicts(p_tenant text, p_project text, p_facts uuid[], p_moments timestamptz[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_sort = off
SET jit = off
AS $$
DECLARE
    v_fact graph_facts;
BEGIN
    FOR i IN 1 .. coalesce(cardinality(p_facts), 0) LOOP
        SELECT f.* INTO v_fact FROM graph_facts f WHERE f.tenant_id = p_tenant AND f.fact_id = p_facts[i];
        CONTINUE WHEN v_fact.object_value IS NULL OR v_fact.confidence = 0 OR v_fact.retracted_at IS NOT NULL
                   OR v_fact.suppression > 0;
        INSERT INTO fact_conflicts (tenant_id, project_id, conflict_id, fact_a, fact_b, detected_at, user_id)
        SELECT p_tenant, p_project, make_id(), x.fact_id, v_fact.fact_id, p_moments[i], v_fact.user_id
        FROM (
            SELECT g.fact_id FROM graph_facts g
            WHERE g.tenant_id = p_tenant AND g.project_id = p_project
              AND g.subject_entity_id = v_fact.subject_entity_id AND g.predicate_id = v_fact.predicate_id
              AND g.valid_from < v_fact.valid_until AND g.valid_until > v_fact.valid_from
              AND g.scope = v_fact.scope AND g.owner_key = v_fact.owner_key AND g.retracted_at IS NULL
              AND g.object_value IS NOT NULL AND g.object_hash <> v_fact.object_hash AND g.confidence > 0
              AND g.suppression = 0
            ORDER BY g.valid_from DESC LIMIT 20
        ) x
        WHERE (SELECT true FROM fact_conflicts c
               WHERE c.tenant_id = p_tenant AND c.fact_a = v_fact.fact_id AND c.fact_b = x.fact_id LIMIT 1) IS NULL
        ON CONFLICT DO NOTHING;
    END LOOP;
END
$$;
