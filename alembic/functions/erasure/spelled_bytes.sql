-- Bytes as the text they most likely are, to be searched for words: UTF-8, or else what is readable of them.
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
