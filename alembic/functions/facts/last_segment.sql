-- The last segment of a URI; any other name as it is.
CREATE OR REPLACE FUNCTION last_segment(p_name text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN uri_scheme(p_name) IS NULL THEN p_name
           ELSE coalesce(nullif(regexp_replace(rtrim(p_name, '/'), '^.*[/:]', ''), ''), p_name) END
$$;
