-- A text in the form in which names are searched: lower case, composed, with one sigma and without the dot above i.
-- Texts and names must both be folded, because Python and PostgreSQL do not lower all letters alike.
CREATE OR REPLACE FUNCTION fold_name(p_text text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT replace(replace(normalize(lower(p_text)), 'ς', 'σ'), U&'i\0307', 'i')
$$;
