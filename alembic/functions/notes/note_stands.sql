-- Returns whether a note existed at p_known (NULL: exists now). Plain SQL without settings, so that it is inlined.
CREATE OR REPLACE FUNCTION note_stands(p_created timestamptz, p_deleted timestamptz, p_known timestamptz)
RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
    SELECT (p_deleted IS NULL OR p_deleted > p_known) AND (p_known IS NULL OR p_created <= p_known)
$$;
