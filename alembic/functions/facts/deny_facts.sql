-- Retracts the facts that drafts of confidence 0 deny, once each, and returns a step for each of those drafts. Raises 40001
-- when one was retracted or hidden meanwhile. Runs with the settings and rights of place_facts, whose caller holds the
-- timelines.
CREATE OR REPLACE FUNCTION deny_facts(p_tenant text, p_project text, p_agent text, p_drafts fact_draft[])
RETURNS fact_step[]
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_facts uuid[] := ARRAY(SELECT DISTINCT d.fact_id FROM unnest(p_drafts) d WHERE d.confidence = 0);
    v_moments timestamptz[] := ARRAY(
        SELECT (SELECT min(d.created_at) FROM unnest(p_drafts) d WHERE d.confidence = 0 AND d.fact_id = u.fact_id)
        FROM unnest(v_facts) WITH ORDINALITY u(fact_id, place) ORDER BY u.place);
BEGIN
    PERFORM FROM unnest(v_facts) u(fact_id)
    CROSS JOIN LATERAL (
        SELECT f.suppression, f.retracted_at FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.fact_id = u.fact_id FOR UPDATE) f
    WHERE f.suppression > 0 OR f.retracted_at IS NOT NULL;
    IF FOUND THEN
        RAISE EXCEPTION 'a fact was retracted or hidden while it was denied' USING ERRCODE = '40001';
    END IF;
    PERFORM mark_retracted(p_tenant, p_project, p_agent, v_facts, 'retracted', NULL, v_moments);
    RETURN ARRAY(
        SELECT ROW(d.idx, d.fact_id, false, NULL, NULL, NULL, NULL, NULL, false)::fact_step
        FROM unnest(p_drafts) d WHERE d.confidence = 0);
END
$$;
