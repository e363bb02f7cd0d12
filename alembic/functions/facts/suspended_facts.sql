-- Returns those of the facts that are retracted only because the notes they cite were deleted; recovering one of these
-- notes restores them. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION suspended_facts(p_tenant text, p_facts uuid[])
RETURNS uuid[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
BEGIN
    RETURN ARRAY(
        SELECT f.fact_id FROM graph_facts f
        JOIN fact_retractions r ON r.tenant_id = p_tenant AND r.fact_id = f.fact_id
            AND r.retracted_at = f.retracted_at AND r.kind = 'note_deleted' AND r.restored_at IS NULL
        WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts)
          AND NOT EXISTS (
              SELECT FROM fact_retractions l
              WHERE l.tenant_id = p_tenant AND l.fact_id = f.fact_id AND l.retracted_at > r.retracted_at)
        ORDER BY f.fact_id);
END
$$;
