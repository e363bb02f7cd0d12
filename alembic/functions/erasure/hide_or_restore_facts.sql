-- Puts what is hidden of these facts in step with the tombstones of the entities they speak of: the facts, their edges,
-- and every row that hangs on them. What comes back takes its place among what was written meanwhile, as if all had been
-- written in the order of their starts. Runs with the rights of its caller, who holds the entity.
CREATE OR REPLACE FUNCTION hide_or_restore_facts(p_tenant text, p_project text, p_agent text, p_facts uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_changed uuid[];
    v_levels smallint[];
    v_restored uuid[];
    v_touched uuid[];
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
        v_touched := ARRAY(
            SELECT DISTINCT x.fact_id FROM graph_facts f
            JOIN graph_facts x ON x.tenant_id = p_tenant AND x.project_id = p_project
                AND x.subject_entity_id = f.subject_entity_id AND x.predicate_id = f.predicate_id
                AND x.scope = f.scope AND x.owner_key = f.owner_key AND x.retracted_at IS NULL
                AND (x.suppression = 0 OR x.fact_id = ANY (v_restored))
            WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (v_restored));
        PERFORM merge_duplicates(p_tenant, p_project, p_agent, v_touched, NULL, NULL, v_now);
        INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at)
        SELECT DISTINCT ON (v.note_id, x.entity_id) p_tenant, p_project, v.note_id, x.entity_id, v.created_at
        FROM graph_facts f
        JOIN graph_fact_evidence v ON v.tenant_id = p_tenant AND v.fact_id = f.fact_id
        CROSS JOIN LATERAL (VALUES (f.subject_entity_id), (f.object_entity_id)) x(entity_id)
        WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (v_restored) AND x.entity_id IS NOT NULL
        ORDER BY v.note_id, x.entity_id, v.created_at
        ON CONFLICT DO NOTHING;
    END IF;

    UPDATE graph_facts f SET suppression = l.level
    FROM unnest(v_changed, v_levels) l(fact_id, level)
    WHERE f.tenant_id = p_tenant AND f.fact_id = l.fact_id;
    -- Cards tell of what is in sight: those of what was hidden, or is there again, are made anew when somebody asks.
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
    -- What hangs on a fact is as hidden as the fact.
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
    UPDATE graph_fact_mentions x SET suppression = f.suppression FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts)
      AND x.tenant_id = p_tenant AND x.fact_id = f.fact_id AND x.suppression <> f.suppression;
    -- What is hidden has no vector: to mark it would cost the index as much as to make it anew.
    DELETE FROM embeddings x USING graph_facts f
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts) AND f.suppression > 0 AND x.tenant_id = p_tenant
      AND x.model_id IN (SELECT m.model_id FROM embedding_models m) AND x.view = 'self' AND x.owner_kind = 'fact'
      AND x.owner_id = f.fact_id;
    DELETE FROM embedding_queue q USING graph_facts f
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts) AND f.suppression > 0 AND q.tenant_id = p_tenant
      AND q.project_id = p_project AND q.model_id IN (SELECT m.model_id FROM embedding_models m)
      AND q.owner_kind = 'fact' AND q.owner_id = f.fact_id;
    PERFORM queue_units(p_tenant, p_project, 'fact', v_restored);
    -- What links two rows is as hidden as the more hidden of them.
    UPDATE graph_fact_evidence x SET suppression = stricter_level(f.suppression, n.suppression)
    FROM graph_facts f, memory_notes n
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts || v_touched)
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
