-- Return the chosen members of a document: p_tree has a member for each, which is true for the whole value, or the tree
-- of the members within it. Missing members are left out. The document is read once, however many are chosen.
CREATE OR REPLACE FUNCTION pick_json(p_document jsonb, p_tree jsonb)
RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    -- A copy: a long document is decompressed once here, and not at each access.
    v_document jsonb := CASE WHEN jsonb_typeof(p_document) = 'object' THEN p_document || '{}' ELSE p_document END;
    v_picked jsonb := '{}';
    v_name text;
    v_inner jsonb;
    v_found jsonb;
BEGIN
    FOR v_name, v_inner IN SELECT m.key, m.value FROM jsonb_each(p_tree) m LOOP
        v_found := json_at(v_document, ARRAY[v_name]);
        IF v_found IS NULL THEN
            CONTINUE;
        ELSIF v_inner = 'true'::jsonb THEN
            v_picked := v_picked || jsonb_build_object(v_name, v_found);
        ELSIF jsonb_typeof(v_found) IN ('object', 'array') THEN
            v_picked := v_picked || jsonb_build_object(v_name, pick_json(v_found, v_inner));
        END IF;
    END LOOP;
    RETURN v_picked;
END
$$;
