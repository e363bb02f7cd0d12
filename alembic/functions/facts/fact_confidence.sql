-- How sure a fact was at p_known (NULL: how sure it is), before it was weighed anew or taken back. Plain SQL without
-- settings and without a query of its own, so that it becomes part of the query that asks. Runs with the rights of its
-- caller.
CREATE OR REPLACE FUNCTION fact_confidence(
    p_fact uuid, p_confidence double precision, p_weighed timestamptz, p_retracted timestamptz, p_tenant text,
    p_known timestamptz)
RETURNS double precision
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN p_known IS NULL THEN p_confidence
           ELSE past_confidence(p_fact, p_confidence, p_weighed, p_retracted, p_tenant, p_known) END
$$;
