-- Does for many facts at once what set_confidence does for one: sets confidence and mentions of facts and their edges, and
-- records what they were. Planned for each call, by the number of facts. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION set_confidences(
    p_tenant text, p_project text, p_facts uuid[], p_confidences double precision[], p_mentions int[],
    p_moment timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
BEGIN
    IF coalesce(cardinality(p_facts), 0) = 0 THEN
        RETURN;
    END IF;
    INSERT INTO fact_confidences (
        tenant_id, project_id, change_id, fact_id, recorded_at, previous_confidence, previous_mentions, suppression,
        user_id)
    SELECT p_tenant, p_project, make_id(), u.fact_id, p_moment, f.confidence, f.mentions, f.suppression, f.user_id
    FROM unnest(p_facts) u(fact_id)
    JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_id = u.fact_id;
    -- Facts of very low confidence have no vector.
    PERFORM queue_units(p_tenant, p_project, 'fact', array_agg(u.fact_id))
    FROM unnest(p_facts, p_confidences) u(fact_id, confidence)
    JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_id = u.fact_id
    WHERE (f.confidence > 0.1) <> (u.confidence > 0.1);
    UPDATE graph_facts f
    SET confidence = u.confidence, mentions = u.mentions, weighed_at = p_moment, updated_at = p_moment
    FROM unnest(p_facts, p_confidences, p_mentions) u(fact_id, confidence, mentions)
    WHERE f.tenant_id = p_tenant AND f.fact_id = u.fact_id;
    UPDATE entity_edges x SET confidence = u.confidence, weighed_at = p_moment
    FROM unnest(p_facts, p_confidences) u(fact_id, confidence)
    WHERE x.tenant_id = p_tenant AND x.edge_id = u.fact_id;
END
$$;
