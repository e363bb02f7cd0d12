-- Returns the keys under which the index has these terms for a caller: those of what all users share, and those of the
-- caller's user, or of every user (see owned_keys).
CREATE OR REPLACE FUNCTION search_keys(p_tenant text, p_project text, p_user text, p_terms text[])
RETURNS text[]
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_shared text[] := lexical_keys(p_tenant, p_project, p_terms);
BEGIN
    IF coalesce(p_user, '') = '' THEN
        RETURN v_shared;
    END IF;
    RETURN v_shared || lexical_keys(p_tenant, p_project || '/' || p_user, p_terms);
END
$$;
