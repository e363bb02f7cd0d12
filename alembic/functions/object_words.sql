-- The words of an object's properties: every string and number in them, in the order of their keys, up to 100,000
-- characters.
CREATE OR REPLACE FUNCTION object_words(p_properties jsonb)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN left((
        SELECT string_agg(v.value #>> '{}', ' ' ORDER BY v.place)
        FROM jsonb_path_query(p_properties, 'strict $.** ? (@.type() == "string" || @.type() == "number")')
            WITH ORDINALITY v(value, place)), 100000);
END
$$;
