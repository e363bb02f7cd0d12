-- Whether a fact was valid at p_valid, as it was known at p_known; of the present fact_stands tells alone. Runs with the
-- rights of its caller.
CREATE OR REPLACE FUNCTION fact_stood(
    p_fact uuid, p_from timestamptz, p_until timestamptz, p_created timestamptz, p_closed timestamptz,
    p_retracted timestamptz, p_tenant text, p_valid timestamptz, p_known timestamptz)
RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT p_from <= p_valid AND p_created <= p_known
       AND (p_retracted IS NULL OR p_retracted > p_known)
       AND CASE WHEN p_closed > p_known THEN (
               SELECT coalesce(c.previous_valid_to, 'infinity') FROM fact_closings c
               WHERE c.tenant_id = p_tenant AND c.fact_id = p_fact AND c.recorded_at > p_known
               ORDER BY c.recorded_at LIMIT 1) ELSE p_until END > p_valid
$$;
