-- What the properties of an object say: every string and number in them, however deep, in the order the database keeps
-- their names in; not what they are called. No more than can be searched for.
CREATE OR REPLACE FUNCTION object_words(p_properties jsonb)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN coalesce(left((
        -- Strict, or what stands in a list would be found twice.
        SELECT string_agg(w.word #>> '{}', ' ' ORDER BY w.place)
        FROM jsonb_path_query(p_properties, 'strict $.** ? (@.type() == "string" || @.type() == "number")')
             WITH ORDINALITY w(word, place)), 100000), '');
END
$$;
