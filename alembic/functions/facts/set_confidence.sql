-- Sets the confidence of a fact and its edge, adds mentions, and records what they were. Runs with the rights of its
-- caller.
CREATE OR REPLACE FUNCTION set_confidence(
    p_tenant text, p_project text, p_fact uuid, p_confidence double precision, p_moment timestamptz, p_mentions int,
    p_decayed boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
BEGIN
    INSERT INTO fact_confidences (
        tenant_id, project_id, change_id, fact_id, recorded_at, previous_confidence, previous_mentions, suppression,
        user_id)
    SELECT p_tenant, p_project, make_id(), f.fact_id, p_moment, f.confidence, f.mentions, f.suppression, f.user_id
    FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.fact_id = p_fact AND (f.confidence <> p_confidence OR p_mentions > 0);
    -- Facts of very low confidence have no vector.
    IF EXISTS (SELECT FROM graph_facts f
               WHERE f.tenant_id = p_tenant AND f.fact_id = p_fact
                 AND (f.confidence > 0.1) <> (p_confidence > 0.1)) THEN
        PERFORM queue_units(p_tenant, p_project, 'fact', ARRAY[p_fact]);
    END IF;
    UPDATE graph_facts f
    SET confidence = p_confidence, mentions = f.mentions + p_mentions, weighed_at = p_moment, updated_at = p_moment
    WHERE f.tenant_id = p_tenant AND f.fact_id = p_fact;
    UPDATE entity_edges x
    SET confidence = p_confidence, weighed_at = p_moment,
        decayed_at = CASE WHEN p_decayed THEN p_moment ELSE x.decayed_at END
    WHERE x.tenant_id = p_tenant AND x.edge_id = p_fact;
END
$$;
