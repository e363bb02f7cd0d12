-- Return the change summary of a version that deletes (p_mark deleted), restores (restored) or creates (NULL) something
-- with these properties, as the service writes it: by the names of the top level, or as a whole where they are too
-- long.
CREATE OR REPLACE FUNCTION version_summary(p_properties jsonb, p_mark text)
RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_names jsonb;
    v_count int;
    v_bytes int := octet_length(p_properties::text);
    v_short boolean;
    v_deleted boolean := p_mark IS NOT DISTINCT FROM 'deleted';
    v_added jsonb;
BEGIN
    SELECT coalesce(jsonb_agg('/' || replace(replace(k.name, '~', '~0'), '/', '~1') ORDER BY k.name), '[]'), count(*)
    INTO v_names, v_count FROM jsonb_object_keys(p_properties) k(name);
    IF octet_length(v_names::text) > 4096 THEN
        v_names := '[""]';
    END IF;
    v_short := v_bytes <= 2048 AND v_names <> '[""]';
    SELECT coalesce(jsonb_object_agg('/' || replace(replace(p.name, '~', '~0'), '/', '~1'), p.value), '{}')
    INTO v_added FROM jsonb_each(p_properties) p(name, value) WHERE v_short AND NOT v_deleted;
    RETURN jsonb_build_object(
        'added', CASE WHEN v_deleted OR v_short THEN v_added
                      ELSE jsonb_build_object('count', v_count, 'elided', true) END,
        'removed', CASE WHEN v_deleted THEN v_names ELSE '[]' END,
        'updated', '{}'::jsonb, 'paths', v_names,
        'meta', jsonb_strip_nulls(jsonb_build_object(
            'added', CASE WHEN v_deleted THEN 0 ELSE v_count END,
            'removed', CASE WHEN v_deleted THEN v_count ELSE 0 END,
            'updated', 0, 'propBytesBefore', CASE WHEN v_deleted THEN v_bytes ELSE 2 END,
            'propBytesAfter', CASE WHEN v_deleted THEN 2 ELSE v_bytes END,
            'deleted', CASE WHEN p_mark = 'deleted' THEN true END,
            'restored', CASE WHEN p_mark = 'restored' THEN true END)));
END
$$;
