-- Retracts facts: sets confidence 0 and the time on fact and edge, records what was retracted, and resolves their open
-- conflicts. A fact that was wrong changes the history of its source. Runs with the rights of its caller.
-- Planned for each call, by the number of facts: a plan that was kept for one fact would be wrong for thousands, and one
-- from a small table for a large one.
CREATE OR REPLACE FUNCTION mark_retracted(
    p_tenant text, p_project text, p_agent text, p_facts uuid[], p_kind text, p_reason text,
    p_moments timestamptz[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    v_others uuid[];
BEGIN
    IF coalesce(cardinality(p_facts), 0) = 0 THEN
        RETURN;
    END IF;
    -- Retracted facts have no vector.
    PERFORM queue_units(p_tenant, p_project, 'fact', p_facts);
    INSERT INTO fact_retractions (
        tenant_id, project_id, retraction_id, fact_id, agent_id, scope, garden_id, suppression, kind, reason,
        retracted_by, confidence_before, retracted_at, user_id)
    SELECT p_tenant, p_project, make_id(), u.fact_id, f.agent_id, f.scope, f.garden_id, f.suppression, p_kind,
           p_reason, p_agent, f.confidence, u.moment, f.user_id
    FROM unnest(p_facts, p_moments) u(fact_id, moment)
    CROSS JOIN LATERAL (
        SELECT f.agent_id, f.scope, f.garden_id, f.suppression, f.confidence, f.user_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.fact_id = u.fact_id OFFSET 0) f;
    UPDATE graph_facts f SET confidence = 0, retracted_at = u.moment, updated_at = u.moment
    FROM unnest(p_facts, p_moments) u(fact_id, moment)
    WHERE f.tenant_id = p_tenant AND f.fact_id = u.fact_id;
    UPDATE entity_edges x
    SET confidence = 0, retracted_at = u.moment,
        decayed_at = CASE p_kind WHEN 'decayed' THEN u.moment ELSE x.decayed_at END
    FROM unnest(p_facts, p_moments) u(fact_id, moment)
    WHERE x.tenant_id = p_tenant AND x.edge_id = u.fact_id;
    -- First by one fact of each pair, then by the other: a join of both would look up every conflict once more.
    WITH resolved AS (
        UPDATE fact_conflicts c
        SET status = 'resolved', resolved_by = p_agent, resolved_at = u.moment, resolution_note = p_kind
        FROM unnest(p_facts, p_moments) u(fact_id, moment)
        WHERE c.tenant_id = p_tenant AND c.fact_a = u.fact_id AND c.status = 'open'
        RETURNING c.fact_a, c.fact_b
    )
    SELECT array_agg(DISTINCT x.fact_id) INTO v_others FROM resolved r
    CROSS JOIN LATERAL (VALUES (r.fact_a), (r.fact_b)) x(fact_id);
    WITH resolved AS (
        UPDATE fact_conflicts c
        SET status = 'resolved', resolved_by = p_agent, resolved_at = u.moment, resolution_note = p_kind
        FROM unnest(p_facts, p_moments) u(fact_id, moment)
        WHERE c.tenant_id = p_tenant AND c.fact_b = u.fact_id AND c.status = 'open'
        RETURNING c.fact_a, c.fact_b
    )
    SELECT array_agg(DISTINCT x.fact_id) INTO v_others
    FROM (
        SELECT unnest(v_others) AS fact_id
        UNION ALL
        SELECT x.fact_id FROM resolved r CROSS JOIN LATERAL (VALUES (r.fact_a), (r.fact_b)) x(fact_id)
    ) x;
    IF v_others IS NOT NULL THEN
        -- Of more than 20 values not all pairs are recorded: a value that lost its last one may contradict others.
        PERFORM record_conflicts(p_tenant, p_project, array_agg(x.fact_id), array_agg(p_moments[1]))
        FROM unnest(v_others) x(fact_id)
        CROSS JOIN LATERAL (
            SELECT FROM graph_facts f
            WHERE f.tenant_id = p_tenant AND f.fact_id = x.fact_id AND f.retracted_at IS NULL OFFSET 0) f
        WHERE NOT EXISTS (
            SELECT FROM fact_conflicts c
            WHERE c.tenant_id = p_tenant AND c.fact_a = x.fact_id AND c.status = 'open')
          AND NOT EXISTS (
            SELECT FROM fact_conflicts c
            WHERE c.tenant_id = p_tenant AND c.fact_b = x.fact_id AND c.status = 'open');
    END IF;
    IF p_kind IN ('retracted', 'resolved') THEN
        PERFORM queue_trust(p_tenant, p_project, p_facts);
    END IF;
END
$$;
