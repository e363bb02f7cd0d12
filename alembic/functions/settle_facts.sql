-- Puts what is hidden of these facts in step with the tombstones of the entities they speak of: the facts, their edges,
-- and every row that hangs on them. Runs with the rights of its caller, who holds the entity.
CREATE OR REPLACE FUNCTION settle_facts(p_tenant text, p_facts uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
BEGIN
    UPDATE graph_facts f SET suppression = l.level
    FROM (
        SELECT f.fact_id, stricter_level(
                   hidden_level(s.erased_scopes, s.held_scopes, f.scope),
                   hidden_level(o.erased_scopes, o.held_scopes, f.scope)) AS level
        FROM graph_facts f
        JOIN graph_entities s ON s.tenant_id = p_tenant AND s.entity_id = f.subject_entity_id
        LEFT JOIN graph_entities o ON o.tenant_id = p_tenant AND o.entity_id = f.object_entity_id
        WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts)
    ) l
    WHERE f.tenant_id = p_tenant AND f.fact_id = l.fact_id AND f.suppression <> l.level;
    UPDATE entity_edges x SET suppression = f.suppression FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts)
      AND x.tenant_id = p_tenant AND x.edge_id = f.fact_id AND x.suppression <> f.suppression;
    UPDATE fact_retractions x SET suppression = f.suppression FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts)
      AND x.tenant_id = p_tenant AND x.fact_id = f.fact_id AND x.suppression <> f.suppression;
    UPDATE fact_closings x SET suppression = f.suppression FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts)
      AND x.tenant_id = p_tenant AND x.fact_id = f.fact_id AND x.suppression <> f.suppression;
    UPDATE fact_confidences x SET suppression = f.suppression FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts)
      AND x.tenant_id = p_tenant AND x.fact_id = f.fact_id AND x.suppression <> f.suppression;
    UPDATE fact_derivations x SET suppression = f.suppression FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts)
      AND x.tenant_id = p_tenant AND x.fact_id = f.fact_id AND x.suppression <> f.suppression;
    -- What links two rows is as hidden as the more hidden of them.
    UPDATE graph_fact_evidence x SET suppression = stricter_level(f.suppression, n.suppression)
    FROM graph_facts f, memory_notes n
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts)
      AND x.tenant_id = p_tenant AND x.fact_id = f.fact_id
      AND n.tenant_id = p_tenant AND n.note_id = x.note_id
      AND x.suppression <> stricter_level(f.suppression, n.suppression);
    UPDATE graph_fact_supersessions x SET suppression = l.level
    FROM (
        SELECT x.supersession_id, stricter_level(a.suppression, b.suppression) AS level
        FROM graph_fact_supersessions x
        JOIN graph_facts a ON a.tenant_id = p_tenant AND a.fact_id = x.from_fact_id
        JOIN graph_facts b ON b.tenant_id = p_tenant AND b.fact_id = x.to_fact_id
        WHERE x.tenant_id = p_tenant AND (x.from_fact_id = ANY (p_facts) OR x.to_fact_id = ANY (p_facts))
    ) l
    WHERE x.tenant_id = p_tenant AND x.supersession_id = l.supersession_id AND x.suppression <> l.level;
    UPDATE fact_conflicts x SET suppression = l.level
    FROM (
        SELECT x.conflict_id, stricter_level(a.suppression, b.suppression) AS level
        FROM fact_conflicts x
        JOIN graph_facts a ON a.tenant_id = p_tenant AND a.fact_id = x.fact_a
        JOIN graph_facts b ON b.tenant_id = p_tenant AND b.fact_id = x.fact_b
        WHERE x.tenant_id = p_tenant AND (x.fact_a = ANY (p_facts) OR x.fact_b = ANY (p_facts))
    ) l
    WHERE x.tenant_id = p_tenant AND x.conflict_id = l.conflict_id AND x.suppression <> l.level;
END
$$;
