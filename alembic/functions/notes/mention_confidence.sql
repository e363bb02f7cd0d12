-- Returns how sure it is that a note mentions an entity: 1 when a caller said so (p_given), or when the text has one of
-- its names as it is spelled; .9 when the text has one in another spelling; .7 when only a model says so.
-- p_spelling: as find_mention returns it.
CREATE OR REPLACE FUNCTION mention_confidence(p_given boolean, p_spelling text)
RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN p_given OR p_spelling = 'exact' THEN 1.0 WHEN p_spelling = 'folded' THEN 0.9 ELSE 0.7 END
$$;
