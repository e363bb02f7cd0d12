-- Return SQL arguments of concat, the fastest way to write fields of a row called x as members of a JSON object, each
-- after a comma. p_include: fields, and as properties either true or the tree of those to return.
CREATE OR REPLACE FUNCTION fragment_clause(p_include jsonb)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_field text;
    v_parts text := '';
BEGIN
    FOR v_field IN SELECT f.field FROM jsonb_array_elements_text(p_include -> 'fields') f(field) LOOP
        v_parts := v_parts || format(', %L, ', format(',%s:', to_json(v_field))) || CASE
            WHEN v_field IN ('version', 'weight') THEN format('coalesce(x.%I::text, ''null'')', v_field)
            WHEN v_field IN ('effective_from', 'effective_to', 'valid_from', 'valid_to', 'created_at', 'updated_at')
                THEN format('coalesce(to_char(x.%I AT TIME ZONE ''UTC'', ''\"YYYY-MM-DD"T"HH24:MI:SS.US"Z"\"''), '
                            '''null'')', v_field)
            ELSE format('coalesce(to_json(x.%I)::text, ''null'')', v_field)
        END;
    END LOOP;
    IF p_include -> 'properties' = 'true'::jsonb THEN
        v_parts := v_parts || ', '',"properties":'', x.properties';
    ELSIF p_include ? 'properties' THEN
        v_parts := v_parts || format(', '',"properties":'', pick_json(x.properties, %L)', p_include -> 'properties');
    END IF;
    RETURN v_parts;
END
$$;
