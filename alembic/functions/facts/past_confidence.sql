-- The confidence of a fact at p_known. Plain SQL without a query of its own, so that it becomes part of the calling
-- query.
CREATE OR REPLACE FUNCTION past_confidence(
    p_fact uuid, p_confidence double precision, p_weighed timestamptz, p_retracted timestamptz, p_tenant text,
    p_known timestamptz)
RETURNS double precision
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN p_weighed > p_known OR p_retracted > p_known
           THEN earlier_confidence(p_fact, p_confidence, p_weighed, p_retracted, p_tenant, p_known)
           ELSE p_confidence END
$$;
