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
       AND CASE WHEN p_closed > p_known THEN past_valid_until(p_tenant, p_fact, p_known) ELSE p_until END > p_valid
$$;
