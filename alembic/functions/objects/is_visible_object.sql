-- Return whether the policy of objects and relationships lets a caller of p_project read a row: it belongs to that
-- project or to every project, and is not suppressed. For functions of the owner, where the policy does not apply.
CREATE OR REPLACE FUNCTION is_visible_object(p_row_project text, p_row_suppression smallint, p_project text)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT (p_row_project IS NULL OR p_row_project = p_project) AND p_row_suppression = 0
$$;
