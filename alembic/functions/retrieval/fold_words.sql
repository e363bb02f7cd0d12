-- Returns a text as it is indexed: letters without accents, compatibility forms as common ones, and in scripts without
-- spaces every character and every pair of characters (in a query only the pairs, which are more specific). ASCII is
-- returned as it is.
CREATE OR REPLACE FUNCTION fold_words(p_text text, p_query boolean DEFAULT false)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    -- Thai, Lao, Burmese, Khmer; kana, Chinese characters and Hangul.
    v_unspaced text := '\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff'
        '\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff';
    v_text text;
BEGIN
    IF octet_length(p_text) = length(p_text) THEN
        RETURN p_text;
    END IF;
    -- Only marks of Latin and Greek letters are removed: in other scripts they change the letter.
    v_text := regexp_replace(normalize(p_text, NFKD), '([A-Za-z\u0370-\u03ff])[\u0300-\u036f]+', '\1', 'g');
    v_text := translate(v_text, 'øØłŁđĐħĦıς', 'oOlLdDhHiσ');
    v_text := replace(replace(replace(replace(v_text, 'ß', 'ss'), 'æ', 'ae'), 'Æ', 'AE'), 'œ', 'oe');
    v_text := normalize(v_text, NFKC);
    IF v_text !~ ('[' || v_unspaced || ']') THEN
        RETURN v_text;
    END IF;
    RETURN (
        SELECT string_agg(CASE WHEN m.parts[1] IS NULL THEN m.parts[2] ELSE (
            -- Each with the next one by lead(): substr() would count through the text for every character.
            SELECT ' ' || string_agg(CASE
                       WHEN p_query AND length(m.parts[1]) > 1 THEN c.letter || c.following
                       ELSE concat_ws(' ', c.letter, c.letter || c.following) END, ' ' ORDER BY c.place) || ' '
            FROM (SELECT l.letter, l.place, lead(l.letter) OVER (ORDER BY l.place) AS following
                  FROM string_to_table(m.parts[1], NULL) WITH ORDINALITY l(letter, place)) c) END, '' ORDER BY m.place)
        FROM regexp_matches(v_text, '([' || v_unspaced || ']+)|([^' || v_unspaced || ']+)', 'g')
             WITH ORDINALITY m(parts, place));
END
$$;
