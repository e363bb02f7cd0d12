-- Returns whether an edge may have been valid at p_valid as it was recorded at p_known (NULL: now); whether one that
-- was closed since was, depends on end_known_at. Plain SQL without settings, so that it is inlined.
CREATE OR REPLACE FUNCTION edge_stands(
    p_from timestamptz, p_until timestamptz, p_created timestamptz, p_closed timestamptz, p_retracted timestamptz,
    p_valid timestamptz, p_known timestamptz)
RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
    SELECT p_created <= coalesce(p_known, 'infinity') AND (p_retracted IS NULL OR p_retracted > p_known)
       AND p_from <= p_valid AND (p_until > p_valid OR p_closed > p_known)
$$;
