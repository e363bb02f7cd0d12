-- Return the value within a document that the tokens of a JSON Pointer lead to; NULL when there is none. Unlike #>, an
-- array only takes a plain index, not " 1", "+1", "01" or "-1".
CREATE OR REPLACE FUNCTION json_at(p_document jsonb, p_tokens text[])
RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    v_found jsonb := p_document;
    v_token text;
BEGIN
    FOREACH v_token IN ARRAY p_tokens LOOP
        v_found := CASE
            WHEN jsonb_typeof(v_found) = 'object' THEN v_found -> v_token
            WHEN jsonb_typeof(v_found) = 'array' AND v_token ~ '^(0|[1-9][0-9]{0,8})$' THEN v_found -> v_token::int
        END;
    END LOOP;
    RETURN v_found;
END
$$;
