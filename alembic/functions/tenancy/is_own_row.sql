-- Returns whether a caller may change a row of this user: a user what is theirs, a caller without a user everything.
CREATE OR REPLACE FUNCTION is_own_row(p_row_user text, p_user text)
RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
    SELECT p_row_user = p_user OR p_user = '*'
$$;
