-- The end of a fact as it was known at p_known; 'infinity' when it was open. Plain SQL without a query of its own, so
-- that it becomes part of the calling query.
CREATE OR REPLACE FUNCTION end_known_at(
    p_fact uuid, p_until timestamptz, p_closed timestamptz, p_tenant text, p_known timestamptz)
RETURNS timestamptz
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN p_closed > p_known THEN past_end(p_fact, p_tenant, p_known) ELSE p_until END
$$;
