-- Takes facts back: confidence 0 and the moment on fact and edge, and a record of what stood there.
-- What was in conflict with them no longer is. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION take_back(
    p_tenant text, p_project text, p_agent text, p_facts uuid[], p_kind text, p_reason text,
    p_moments timestamptz[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    IF p_facts IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO fact_retractions (
        tenant_id, project_id, retraction_id, fact_id, kind, reason, retracted_by, confidence_before, retracted_at)
    SELECT p_tenant, p_project, make_id(), f.fact_id, p_kind, p_reason, p_agent, f.confidence, u.moment
    FROM unnest(p_facts, p_moments) u(fact_id, moment)
    JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_id = u.fact_id;
    UPDATE graph_facts f SET confidence = 0, retracted_at = u.moment, updated_at = u.moment
    FROM unnest(p_facts, p_moments) u(fact_id, moment)
    WHERE f.tenant_id = p_tenant AND f.fact_id = u.fact_id;
    UPDATE entity_edges x SET confidence = 0, retracted_at = u.moment
    FROM unnest(p_facts, p_moments) u(fact_id, moment)
    WHERE x.tenant_id = p_tenant AND x.edge_id = u.fact_id;
    UPDATE fact_conflicts c
    SET status = 'resolved', resolved_by = p_agent, resolved_at = u.moment, resolution_note = p_kind
    FROM unnest(p_facts, p_moments) u(fact_id, moment)
    WHERE c.tenant_id = p_tenant AND c.status = 'open' AND (c.fact_a = u.fact_id OR c.fact_b = u.fact_id);
END
$$;
