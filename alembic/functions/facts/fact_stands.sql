-- Whether a fact was valid at p_valid, as it was known at p_known (NULL: as it is known now). Plain SQL without a query
-- of its own, so that it becomes part of the calling query: a call would cost more than reading the fact.
CREATE OR REPLACE FUNCTION fact_stands(
    p_fact uuid, p_from timestamptz, p_until timestamptz, p_created timestamptz, p_closed timestamptz,
    p_retracted timestamptz, p_tenant text, p_valid timestamptz, p_known timestamptz)
RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN p_known IS NULL THEN p_from <= p_valid AND p_retracted IS NULL AND p_until > p_valid
           ELSE fact_stood(p_fact, p_from, p_until, p_created, p_closed, p_retracted, p_tenant, p_valid, p_known) END
$$;
