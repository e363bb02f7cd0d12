-- Returns by what an erased user is known: a hash that tells nobody the id, and that the id can be compared with.
CREATE OR REPLACE FUNCTION user_hash(p_tenant text, p_project text, p_user text)
RETURNS bytea
LANGUAGE sql IMMUTABLE
AS $$
    SELECT sha256(convert_to(p_tenant || '/' || p_project || '/' || p_user, 'UTF8'))
$$;
