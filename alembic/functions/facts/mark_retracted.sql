-- Retracts facts: sets confidence 0 and the time on fact and edge, records what was retracted, and resolves their open
-- conflicts. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION mark_retracted(
    p_tenant text, p_project text, p_agent text, p_facts uuid[], p_kind text, p_reason text,
    p_moments timestamptz[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_sort = off
SET jit = off
AS $$
DECLARE
    v_fact graph_facts;
    v_conflict uuid;
BEGIN
    -- Retracted facts have no vector.
    PERFORM queue_units(p_tenant, p_project, 'fact', p_facts);
    FOR i IN 1 .. coalesce(cardinality(p_facts), 0) LOOP
        SELECT f.* INTO v_fact FROM graph_facts f WHERE f.tenant_id = p_tenant AND f.fact_id = p_facts[i];
        INSERT INTO fact_retractions (
            tenant_id, project_id, retraction_id, fact_id, agent_id, scope, garden_id, suppression, kind, reason,
            retracted_by, confidence_before, retracted_at)
        VALUES (p_tenant, p_project, make_id(), p_facts[i], v_fact.agent_id, v_fact.scope, v_fact.garden_id,
                v_fact.suppression, p_kind, p_reason, p_agent, v_fact.confidence, p_moments[i]);
        UPDATE graph_facts f SET confidence = 0, retracted_at = p_moments[i], updated_at = p_moments[i]
        WHERE f.tenant_id = p_tenant AND f.fact_id = p_facts[i];
        IF v_fact.object_entity_id IS NOT NULL THEN
            UPDATE entity_edges x
            SET confidence = 0, retracted_at = p_moments[i],
                decayed_at = CASE p_kind WHEN 'decayed' THEN p_moments[i] ELSE x.decayed_at END
            WHERE x.tenant_id = p_tenant AND x.edge_id = p_facts[i];
            CONTINUE;
        END IF;
        FOR v_conflict IN
            (SELECT c.conflict_id FROM fact_conflicts c
             WHERE c.tenant_id = p_tenant AND c.fact_a BETWEEN p_facts[i] AND p_facts[i] AND c.status = 'open'
             ORDER BY c.fact_a)
            UNION ALL
            (SELECT c.conflict_id FROM fact_conflicts c
             WHERE c.tenant_id = p_tenant AND c.fact_b BETWEEN p_facts[i] AND p_facts[i] AND c.status = 'open'
             ORDER BY c.fact_b)
        LOOP
            UPDATE fact_conflicts c
            SET status = 'resolved', resolved_by = p_agent, resolved_at = p_moments[i], resolution_note = p_kind
            WHERE c.tenant_id = p_tenant AND c.conflict_id = v_conflict;
        END LOOP;
    END LOOP;
END
$$;
