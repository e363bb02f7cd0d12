-- Chosen members of a document: p_tree has a member for each, true for all that is there, or the members wanted within
-- it. What is missing is left out. Reads the document once, however many are chosen.
CREATE OR REPLACE FUNCTION pick_json(p_document jsonb, p_tree jsonb)
RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    -- A copy in hand: a long document is unpacked here, and not at each look into it.
    v_document jsonb := CASE WHEN jsonb_typeof(p_document) = 'object' THEN p_document || '{}' ELSE p_document END;
    v_picked jsonb := '{}';
    v_name text;
    v_inner jsonb;
    v_there jsonb;
BEGIN
    FOR v_name, v_inner IN SELECT m.key, m.value FROM jsonb_each(p_tree) m LOOP
        v_there := point_at(v_document, ARRAY[v_name]);
        IF v_there IS NULL THEN
            CONTINUE;
        ELSIF v_inner = 'true'::jsonb THEN
            v_picked := v_picked || jsonb_build_object(v_name, v_there);
        ELSIF jsonb_typeof(v_there) IN ('object', 'array') THEN
            v_picked := v_picked || jsonb_build_object(v_name, pick_json(v_there, v_inner));
        END IF;
    END LOOP;
    RETURN v_picked;
END
$$;
