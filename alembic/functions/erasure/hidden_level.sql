-- How deep a scope of an entity is hidden: 1 from everyone, 2 by a legal hold, 0 not at all.
CREATE OR REPLACE FUNCTION hidden_level(p_erased text[], p_held text[], p_scope text)
RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN p_scope = ANY (p_erased) THEN 1 WHEN p_scope = ANY (p_held) THEN 2 ELSE 0 END::smallint
$$;
