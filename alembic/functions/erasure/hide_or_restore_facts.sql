-- Hides or restores facts, their edges and the rows that belong to them, as the tombstones of their entities demand.
-- Restored facts are put in order with those written meanwhile. Runs with the rights of its caller, who has locked the
-- entity.
CREATE OR REPLACE FUNCTION hide_or_restore_facts(p_tenant text, p_project text, p_agent text, p_facts uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    v_changed uuid[];
    v_levels smallint[];
    v_restored uuid[];
    v_cited uuid[];
    v_now timestamptz;
BEGIN
    SELECT array_agg(l.fact_id), array_agg(l.level),
           array_agg(l.fact_id) FILTER (WHERE l.level = 0 AND l.retracted_at IS NULL)
    INTO v_changed, v_levels, v_restored
    FROM (
        SELECT f.fact_id, f.suppression, f.retracted_at, stricter_level(stricter_level(
                   hidden_level(s.erased_scopes, s.held_scopes, f.scope),
                   hidden_level(o.erased_scopes, o.held_scopes, f.scope)), m.level) AS level
        FROM graph_facts f
        JOIN graph_entities s ON s.tenant_id = p_tenant AND s.entity_id = f.subject_entity_id
        LEFT JOIN graph_entities o ON o.tenant_id = p_tenant AND o.entity_id = f.object_entity_id
        CROSS JOIN LATERAL (
            SELECT CASE WHEN bool_or(h.level = 1) THEN 1 WHEN bool_or(h.level = 2) THEN 2 ELSE 0 END::smallint AS level
            FROM graph_fact_mentions m
            JOIN graph_entities e ON e.tenant_id = p_tenant AND e.entity_id = m.entity_id
            CROSS JOIN LATERAL (SELECT hidden_level(e.erased_scopes, e.held_scopes, f.scope) AS level) h
            WHERE m.tenant_id = p_tenant AND m.fact_id = f.fact_id
        ) m
        WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts)
    ) l
    WHERE l.suppression <> l.level;

    IF cardinality(v_restored) > 0 THEN
        PERFORM FROM graph_predicates p
        WHERE p.tenant_id = p_tenant AND p.predicate_id IN (
            SELECT f.predicate_id FROM graph_facts f
            WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (v_restored))
        ORDER BY p.predicate_id FOR KEY SHARE;
        PERFORM FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND e.entity_id IN (
            SELECT f.subject_entity_id FROM graph_facts f
            WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (v_restored))
        ORDER BY e.entity_id FOR NO KEY UPDATE;
        v_now := clock_timestamp();
        v_cited := restore_timelines(p_tenant, p_project, p_agent, v_restored, v_now);
    END IF;

    UPDATE graph_facts f SET suppression = l.level
    FROM unnest(v_changed, v_levels) l(fact_id, level)
    WHERE f.tenant_id = p_tenant AND f.fact_id = l.fact_id;
    -- Cards that show these facts are built again when somebody asks for them.
    PERFORM drop_cards(p_tenant, cards_of_facts(p_tenant, p_project, v_changed));
    -- Values that were written while they were hidden may contradict others now.
    IF cardinality(v_restored) > 0 THEN
        PERFORM record_conflicts(p_tenant, p_project, array_agg(f.fact_id), array_agg(v_now))
        FROM graph_facts f
        JOIN graph_predicates p ON p.tenant_id = p_tenant AND p.predicate_id = f.predicate_id AND p.status = 'pending'
        WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (v_restored) AND f.retracted_at IS NULL
          AND f.object_value IS NOT NULL AND EXISTS (
              SELECT FROM tombstones t
              WHERE t.tenant_id = p_tenant AND t.entity_id IN (f.subject_entity_id, f.object_entity_id)
                AND t.created_at <= f.created_at);
    END IF;
    PERFORM hide_or_restore_fact_rows(p_tenant, p_project, p_facts, p_facts || v_cited);
    PERFORM queue_units(p_tenant, p_project, 'fact', v_restored);
END
$$;
