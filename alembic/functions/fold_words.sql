-- A text as it is looked for: letters with accents as plain ones, wide and joined forms as common ones, and of scripts that
-- write no spaces between words every character and every two that stand together (of a query the pairs alone: they say
-- more). Texts of ASCII are as they are, and cost nothing.
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
    -- Marks are taken from Latin letters alone: elsewhere they make another letter of one.
    v_text := regexp_replace(normalize(p_text, NFKD), '([A-Za-z])[\u0300-\u036f]+', '\1', 'g');
    v_text := translate(v_text, 'øØłŁđĐħĦı', 'oOlLdDhHi');
    v_text := replace(replace(replace(replace(v_text, 'ß', 'ss'), 'æ', 'ae'), 'Æ', 'AE'), 'œ', 'oe');
    v_text := normalize(v_text, NFKC);
    IF v_text !~ ('[' || v_unspaced || ']') THEN
        RETURN v_text;
    END IF;
    RETURN (
        SELECT string_agg(CASE WHEN m.parts[1] IS NULL THEN m.parts[2] ELSE (
            SELECT ' ' || string_agg(CASE
                       WHEN p_query AND cardinality(c.letters) > 1 THEN c.letters[i] || c.letters[i + 1]
                       ELSE concat_ws(' ', c.letters[i], c.letters[i] || c.letters[i + 1]) END, ' ' ORDER BY i) || ' '
            FROM (SELECT string_to_array(m.parts[1], NULL) AS letters) c
            CROSS JOIN LATERAL generate_series(1, cardinality(c.letters)) i) END, '' ORDER BY m.place)
        FROM regexp_matches(v_text, '([' || v_unspaced || ']+)|([^' || v_unspaced || ']+)', 'g')
             WITH ORDINALITY m(parts, place));
END
$$;
