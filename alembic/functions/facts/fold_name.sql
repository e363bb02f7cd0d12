-- A text as names are looked for in it: in lower case, composed, and without what capital letters don't tell (whether a
-- sigma ends a word, the dot of an i). Whatever is held against a pattern of names is folded so, and the names are too:
-- Python and PostgreSQL don't make the same small letters of all capital ones.
CREATE OR REPLACE FUNCTION fold_name(p_text text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT replace(replace(normalize(lower(p_text)), 'ς', 'σ'), U&'i\0307', 'i')
$$;
