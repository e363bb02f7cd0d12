-- Restores the facts that were retracted because the notes they cite were deleted, and that cite one of these recovered
-- notes, with the confidence and validity they had; a fact that was retracted for another reason meanwhile stays so.
-- They are put in order with what was written meanwhile. Two closings record that they did not stand in between.
-- Returns the facts. Runs with the rights of recover_dependents.
CREATE OR REPLACE FUNCTION restore_supported(
    p_tenant text, p_project text, p_agent text, p_key text, p_notes uuid[])
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_facts uuid[] := suspended_facts(p_tenant, ARRAY(
        SELECT v.fact_id FROM graph_fact_evidence v WHERE v.tenant_id = p_tenant AND v.note_id = ANY (p_notes)));
    v_now timestamptz;
BEGIN
    IF cardinality(v_facts) = 0 THEN
        RETURN v_facts;
    END IF;
    PERFORM lock_facts(p_tenant, v_facts);
    -- Somebody may have retracted one for good while this waited for the locks.
    v_facts := suspended_facts(p_tenant, v_facts);
    v_now := clock_timestamp();
    -- Before the second closing it was as if they had never been valid, before the first they were as they are now.
    INSERT INTO fact_closings (
        tenant_id, project_id, closing_id, fact_id, recorded_at, previous_valid_to, suppression, user_id)
    SELECT p_tenant, f.project_id, make_id(), f.fact_id, c.at, c.valid_to, f.suppression, f.user_id
    FROM graph_facts f
    CROSS JOIN LATERAL (VALUES (f.retracted_at, f.valid_to), (v_now, f.valid_from)) c(at, valid_to)
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (v_facts);
    UPDATE fact_retractions r SET restored_at = v_now FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (v_facts)
      AND r.tenant_id = p_tenant AND r.fact_id = f.fact_id AND r.retracted_at = f.retracted_at
      AND r.kind = 'note_deleted';
    -- Hidden until hide_or_restore_facts has put them in order, because the unique indexes hold at any moment.
    UPDATE graph_facts f
    SET retracted_at = NULL, confidence = r.confidence_before, closed_at = v_now, updated_at = v_now,
        single_valued = p.status <> 'pending' AND p.cardinality = 'single',
        suppression = CASE f.suppression WHEN 0 THEN 1 ELSE f.suppression END
    FROM fact_retractions r, graph_predicates p
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (v_facts)
      AND r.tenant_id = p_tenant AND r.fact_id = f.fact_id AND r.restored_at = v_now
      AND p.tenant_id = p_tenant AND p.predicate_id = f.predicate_id;
    UPDATE entity_edges x SET retracted_at = NULL, confidence = f.confidence, closed_at = v_now FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (v_facts) AND x.tenant_id = p_tenant AND x.edge_id = f.fact_id;
    PERFORM hide_or_restore_facts(p_tenant, p_project, p_agent, v_facts);
    UPDATE fact_conflicts c
    SET status = 'open', resolved_by = NULL, resolved_at = NULL, resolution_note = NULL
    FROM fact_retractions r, graph_facts a, graph_facts b
    WHERE r.tenant_id = p_tenant AND r.fact_id = ANY (v_facts) AND r.restored_at = v_now
      AND c.tenant_id = p_tenant AND r.fact_id IN (c.fact_a, c.fact_b) AND c.resolution_note = 'note_deleted'
      AND c.resolved_at = r.retracted_at
      AND a.tenant_id = p_tenant AND a.fact_id = c.fact_a AND a.retracted_at IS NULL
      AND b.tenant_id = p_tenant AND b.fact_id = c.fact_b AND b.retracted_at IS NULL;
    PERFORM record_conflicts(p_tenant, p_project, array_agg(f.fact_id), array_agg(v_now))
    FROM graph_facts f
    JOIN graph_predicates p ON p.tenant_id = p_tenant AND p.predicate_id = f.predicate_id AND p.status = 'pending'
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (v_facts);
    PERFORM record_event('fact_write', p_key, jsonb_build_object('action', 'restore', 'fact_ids', to_jsonb(v_facts)));
    RETURN v_facts;
END
$$;
