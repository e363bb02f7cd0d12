-- What a JSON Pointer, given as its tokens, points at within a document; NULL when there is nothing. In arrays only a
-- plain index counts, where the operator #> would also take " 1", "+1", "01" and, from the end, "-1".
CREATE OR REPLACE FUNCTION point_at(p_document jsonb, p_tokens text[])
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
