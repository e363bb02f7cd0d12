-- Whether a fact is preferred to one it contradicts: it has higher confidence, or the same and was written later.
-- Plain SQL, so that it becomes part of the calling query.
CREATE OR REPLACE FUNCTION is_preferred(
    p_confidence double precision, p_created timestamptz, p_other_confidence double precision,
    p_other_created timestamptz)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT (p_confidence, p_created) > (p_other_confidence, p_other_created)
$$;
