-- The scheme of a name that is a URI, with its colon, or NULL: the same rule as is_uri() in app/facts/names.py, where
-- something other than white space must follow the colon.
CREATE OR REPLACE FUNCTION uri_scheme(p_name text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT substring(
        p_name FROM '^[A-Za-z][A-Za-z0-9+.-]*:'
            '(?=[^[:space:]\u001C-\u001F\u0085\u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000])')
$$;
