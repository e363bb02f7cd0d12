-- The stricter of two levels of suppression: hidden from everyone (1) is stricter than a legal hold (2).
CREATE OR REPLACE FUNCTION stricter_level(p_one smallint, p_other smallint)
RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN p_one = 1 OR p_other = 1 THEN 1 WHEN p_one = 2 OR p_other = 2 THEN 2 ELSE 0 END::smallint
$$;
