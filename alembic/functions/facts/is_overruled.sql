-- Whether an open conflict sets a preferred fact against this one (is_preferred), among those that stand at the two
-- times and have enough confidence and trust. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION is_overruled(
    p_tenant text, p_fact uuid, p_valid timestamptz, p_known timestamptz, p_confidence double precision,
    p_trust double precision)
RETURNS boolean
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
    v_others uuid[] := ARRAY(
        SELECT k.fact_b FROM fact_conflicts k
        WHERE k.tenant_id = p_tenant AND k.fact_a = p_fact
          AND is_open_conflict(k.status, k.detected_at, k.resolved_at, p_known)
        UNION ALL
        SELECT k.fact_a FROM fact_conflicts k
        WHERE k.tenant_id = p_tenant AND k.fact_b = p_fact
          AND is_open_conflict(k.status, k.detected_at, k.resolved_at, p_known));
BEGIN
    RETURN cardinality(v_others) > 0 AND EXISTS (
        SELECT FROM graph_facts f
        CROSS JOIN unnest(v_others) x(id)
        CROSS JOIN LATERAL (
            SELECT o.created_at, o.source_trust,
                   fact_confidence(o.fact_id, o.confidence, o.weighed_at, o.retracted_at, p_tenant, p_known)
                       AS confidence
            FROM graph_facts o
            WHERE o.tenant_id = p_tenant AND o.fact_id = x.id
              AND fact_stands(o.fact_id, o.valid_from, o.valid_until, o.created_at, o.closed_at, o.retracted_at,
                              p_tenant, p_valid, p_known)
            OFFSET 0) o
        WHERE f.tenant_id = p_tenant AND f.fact_id = p_fact
          AND o.confidence >= p_confidence AND o.confidence * o.source_trust >= p_trust
          AND is_preferred(
              o.confidence, o.created_at,
              fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, p_tenant, p_known), f.created_at));
END
$$;
