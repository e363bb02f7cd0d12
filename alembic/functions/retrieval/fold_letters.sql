-- Returns a text with letters as they are compared in search and in names: without accents, compatibility forms as
-- common ones, without characters that show nothing (see ignorable_characters), and Cyrillic letters that imitate Latin
-- ones in a word with Latin letters. ASCII is returned as it is.
CREATE OR REPLACE FUNCTION fold_letters(p_text text)
RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    v_text text;
BEGIN
    IF octet_length(p_text) = length(p_text) THEN
        RETURN p_text;
    END IF;
    v_text := regexp_replace(p_text, format('[%s]+', ignorable_characters()), '', 'g');
    -- Only marks of Latin and Greek letters are removed: in other scripts they change the letter.
    v_text := regexp_replace(normalize(v_text, NFKD), '([A-Za-z\u0370-\u03ff])[\u0300-\u036f]+', '\1', 'g');
    v_text := translate(v_text, 'øØłŁđĐħĦıς', 'oOlLdDhHiσ');
    v_text := replace(replace(replace(replace(v_text, 'ß', 'ss'), 'æ', 'ae'), 'Æ', 'AE'), 'œ', 'oe');
    v_text := normalize(v_text, NFKC);
    IF v_text !~ '[A-Za-z][\u0400-\u052f]|[\u0400-\u052f][A-Za-z]' THEN
        RETURN v_text;
    END IF;
    RETURN (
        SELECT string_agg(CASE WHEN m.part[1] !~ '[A-Za-z]' THEN m.part[1] ELSE
                   translate(m.part[1], 'авекмнорстухіјѕһԁԛԝАВЕКМНОРСТУХІЈЅҺԀԚԜ',
                             'abekmhopctyxijshdqwABEKMHOPCTYXIJSHDQW') END, '' ORDER BY m.place)
        FROM regexp_matches(v_text, '([A-Za-z\u0400-\u052f]+|[^A-Za-z\u0400-\u052f]+)', 'g')
             WITH ORDINALITY m(part, place));
END
$$;
