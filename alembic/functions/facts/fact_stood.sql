-- Whether a fact was believed at p_known and valid at p_valid. Plain SQL without a query of its own, so that it becomes
-- part of the calling query.
CREATE OR REPLACE FUNCTION fact_stood(
    p_fact uuid, p_from timestamptz, p_until timestamptz, p_created timestamptz, p_closed timestamptz,
    p_retracted timestamptz, p_tenant text, p_valid timestamptz, p_known timestamptz)
RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT p_from <= p_valid AND p_created <= p_known
       AND (p_retracted IS NULL OR p_retracted > p_known)
       AND end_known_at(p_fact, p_until, p_closed, p_tenant, p_known) > p_valid
$$;
