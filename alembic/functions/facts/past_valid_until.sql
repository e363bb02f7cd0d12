-- Returns the end of validity that a fact had at p_known, for one that was closed since. Runs with the rights of its
-- caller.
CREATE OR REPLACE FUNCTION past_valid_until(p_tenant text, p_fact uuid, p_known timestamptz)
RETURNS timestamptz
LANGUAGE sql STABLE
AS $$
    SELECT coalesce(c.previous_valid_to, 'infinity') FROM fact_closings c
    WHERE c.tenant_id = p_tenant AND c.fact_id = p_fact AND c.recorded_at > p_known
    ORDER BY c.recorded_at LIMIT 1
$$;
