-- Whether a text contains one of these ids, in lower or upper case.
CREATE OR REPLACE FUNCTION contains_ids(p_text text, p_ids uuid[])
RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT EXISTS (
        SELECT FROM regexp_matches(
            lower(p_text), '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}', 'g') u(id)
        WHERE u.id[1]::uuid = ANY (p_ids))
$$;
