-- How many words a text has that are searched for, repetitions counted.
CREATE OR REPLACE FUNCTION count_terms(p_terms tsvector)
RETURNS int
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN coalesce((SELECT sum(cardinality(t.positions)) FROM unnest(p_terms) t), 0);
END
$$;
