-- A name as the words that it is compared by, with single spaces: "Brix, Yolanda" and "yolanda_brix" are both
-- "yolanda brix".
CREATE OR REPLACE FUNCTION name_key(p_name text)
RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    v_words text := btrim(regexp_replace(fold_name(p_name), name_gap() || '+', ' ', 'g'));
BEGIN
    v_words := regexp_replace(v_words, '^([^,]+),([^,]+)$', '\2 \1');
    RETURN btrim(regexp_replace(v_words, '[ ,]+', ' ', 'g'));
END
$$;
