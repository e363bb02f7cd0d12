-- Returns a text as it is indexed: letters as fold_letters has them; the words of addresses, paths, host names and tags,
-- which the parser of text search takes for one word or ignores (not in a query); and in scripts without spaces every
-- character and every pair of characters (in a query only the pairs, which are more specific).
CREATE OR REPLACE FUNCTION fold_words(p_text text, p_query boolean DEFAULT false)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_unspaced text := unspaced_letters();
    v_joined text := '<[[:alpha:]/!?][^<>]*>'
        '|\S*(?:[[:alpha:]][@./\\%]+[[:alnum:]]|[[:alnum:]][@./\\%]+[[:alpha:]]|[<&~/][[:alpha:]])\S*';
    v_text text := fold_letters(p_text);
BEGIN
    IF NOT p_query AND v_text ~ v_joined THEN
        v_text := v_text || ' ' || (
            SELECT string_agg(regexp_replace(m.part[1], '%20|[^[:alnum:]]+', ' ', 'g'), ' ')
            FROM regexp_matches(v_text, v_joined, 'g') m(part));
    END IF;
    IF octet_length(v_text) = length(v_text) OR v_text !~ ('[' || v_unspaced || ']') THEN
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
