-- The confidence a fact had at p_known, before it changed or the fact was retracted. Called only for facts that changed
-- since; see past_confidence. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION earlier_confidence(
    p_fact uuid, p_confidence double precision, p_weighed timestamptz, p_retracted timestamptz, p_tenant text,
    p_known timestamptz)
RETURNS double precision
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN coalesce(
        CASE WHEN p_weighed > p_known THEN (
            SELECT w.previous_confidence FROM fact_confidences w
            WHERE w.tenant_id = p_tenant AND w.fact_id = p_fact AND w.recorded_at > p_known
            ORDER BY w.recorded_at LIMIT 1) END,
        CASE WHEN p_retracted > p_known THEN (
            SELECT r.confidence_before FROM fact_retractions r
            WHERE r.tenant_id = p_tenant AND r.fact_id = p_fact AND r.retracted_at > p_known
            ORDER BY r.retracted_at LIMIT 1) END,
        p_confidence);
END
$$;
