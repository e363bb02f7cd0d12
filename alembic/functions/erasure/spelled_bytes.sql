-- Bytes as the text they most likely are, for searching: UTF-8, or else their readable characters.
CREATE OR REPLACE FUNCTION spelled_bytes(p_bytes bytea)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN convert_from(p_bytes, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
    RETURN encode(p_bytes, 'escape');
END
$$;
