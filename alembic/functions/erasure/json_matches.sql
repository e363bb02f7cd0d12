-- Whether a string value anywhere in a JSON document matches a pattern; names of fields do not count.
CREATE OR REPLACE FUNCTION json_matches(p_json jsonb, p_pattern text)
RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT EXISTS (
        SELECT FROM jsonb_path_query(p_json, '$.** ? (@.type() == "string")') s(word)
        WHERE fold_name(s.word #>> '{}') ~ p_pattern)
$$;
