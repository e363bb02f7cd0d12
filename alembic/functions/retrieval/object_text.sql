-- Returns the text of an object's properties: every string and number at any depth, without the names, cut to what can
-- be indexed.
CREATE OR REPLACE FUNCTION object_text(p_properties jsonb)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN coalesce(left((
        -- Strict: in lax mode, items of arrays would be found twice.
        SELECT string_agg(w.word #>> '{}', ' ' ORDER BY w.place)
        FROM jsonb_path_query(p_properties, 'strict $.** ? (@.type() == "string" || @.type() == "number")')
             WITH ORDINALITY w(word, place)), 100000), '');
END
$$;
