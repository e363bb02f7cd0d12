-- Returns whether a conflict was open at p_known (NULL: is open now). Plain SQL without settings, so that it is
-- inlined.
CREATE OR REPLACE FUNCTION is_open_conflict(
    p_status text, p_detected timestamptz, p_resolved timestamptz, p_known timestamptz)
RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE WHEN p_known IS NULL THEN p_status = 'open'
           ELSE p_detected <= p_known AND (p_resolved IS NULL OR p_resolved > p_known) END
$$;
