-- Returns the inverse document frequency of a term that p_documents of p_total documents contain.
-- Plain SQL without settings, so that it is inlined.
CREATE OR REPLACE FUNCTION inverse_frequency(p_documents double precision, p_total double precision)
RETURNS double precision
LANGUAGE sql IMMUTABLE
AS $$
    SELECT ln(1 + (p_total - p_documents + 0.5) / (p_documents + 0.5))
$$;
