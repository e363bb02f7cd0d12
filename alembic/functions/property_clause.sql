-- The expression in SQL that writes chosen properties of a row called x as JSON text: p_tree has a member for each, true
-- for all that is there, or the members wanted within it. What is missing is left out. p_path: where the tree stands.
CREATE OR REPLACE FUNCTION property_clause(p_tree jsonb, p_path text[])
RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_name text;
    v_inner jsonb;
    v_there text;
    v_parts text := '';
BEGIN
    FOR v_name, v_inner IN SELECT m.key, m.value FROM jsonb_each(p_tree) m LOOP
        v_there := format('point_at(x.properties, %L::text[])', p_path || v_name);
        v_parts := v_parts || format(
            ', CASE WHEN %1$s IS NOT NULL THEN %2$L || %3$s END', v_there, to_json(v_name)::text || ':',
            CASE WHEN v_inner = 'true'::jsonb THEN format('(%s)::text', v_there)
                 ELSE property_clause(v_inner, p_path || v_name) END);
    END LOOP;
    RETURN format('concat(''{'', concat_ws('',''%s), ''}'')', v_parts);
END
$$;
