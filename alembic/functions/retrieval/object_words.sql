-- Return every string and number of an object's properties at any depth, without their names, up to the length that is
-- searched.
CREATE OR REPLACE FUNCTION object_words(p_properties jsonb)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN coalesce(left((
        -- Strict: lax mode returns the elements of arrays twice.
        SELECT string_agg(w.word #>> '{}', ' ' ORDER BY w.place)
        FROM jsonb_path_query(p_properties, 'strict $.** ? (@.type() == "string" || @.type() == "number")')
             WITH ORDINALITY w(word, place)), 100000), '');
END
$$;
