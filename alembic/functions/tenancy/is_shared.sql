-- Whether a row is shared with the other projects of its tenant, which nothing of an end user is: what the policies let readers with reach shared see of
-- those, for functions of the owner. Plain SQL without settings, so that it is inlined.
CREATE OR REPLACE FUNCTION is_shared(p_scope text, p_garden uuid, p_user text, p_suppression smallint)
RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
    SELECT p_scope IN ('org_shared', 'public') AND p_garden IS NULL AND p_user = '' AND p_suppression = 0
$$;
