-- The regular expression for what stands between the words of a name: one character that is no letter, digit or comma,
-- or the white space of a URL. A comma changes the order of the words.
CREATE OR REPLACE FUNCTION name_gap()
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT '(?:[^,0-9a-z\u00aa\u00b5\u00ba\u00c0-\u1fff\u2c00-\u2dff\u2e80-\u2fff\u3005-\u3007\u3021-\u3029'
           '\u3031-\u3035\u3041-\u30fa\u30fc-\U0001efff\U00020000-\U0003ffff]|%20)'
$$;
