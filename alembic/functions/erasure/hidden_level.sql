-- The suppression of an entity in a scope: 1 hidden from everyone, 2 hidden by a legal hold, 0 visible.
CREATE OR REPLACE FUNCTION hidden_level(p_erased text[], p_held text[], p_scope text)
RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN p_scope = ANY (p_erased) THEN 1 WHEN p_scope = ANY (p_held) THEN 2 ELSE 0 END::smallint
$$;
