-- The confidence of a fact at p_known (NULL: now). Plain SQL without a query of its own, so that it becomes part of the
-- calling query.
CREATE OR REPLACE FUNCTION fact_confidence(
    p_fact uuid, p_confidence double precision, p_weighed timestamptz, p_retracted timestamptz, p_tenant text,
    p_known timestamptz)
RETURNS double precision
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN p_known IS NULL THEN p_confidence
           ELSE past_confidence(p_fact, p_confidence, p_weighed, p_retracted, p_tenant, p_known) END
$$;
