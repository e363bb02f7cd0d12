-- What a URI calls a thing: its last segment; any other name is itself.
CREATE OR REPLACE FUNCTION last_segment(p_name text)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN CASE WHEN p_name ~ '^[A-Za-z][A-Za-z0-9+.-]*:[^ ]+$'
        THEN coalesce(nullif(regexp_replace(rtrim(p_name, '/'), '^.*[/:]', ''), ''), p_name) ELSE p_name END;
END
$$;
