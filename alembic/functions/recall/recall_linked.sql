-- Which notes share rare names with the best hits (see link_notes), and what ranking needs of those among them that are
-- not in p_seen, as JSON. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION recall_linked(
    p_tenant text, p_project text, p_terms text[], p_model smallint, p_dimensions int, p_vector text, p_sources uuid[],
    p_total bigint, p_average double precision, p_reach int, p_known timestamptz, p_scope text,
    p_seen uuid[], p_limit int)
RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_links json;
    v_new uuid[];
BEGIN
    SELECT coalesce(json_agg(json_build_array(l.source_id, l.note_id, l.strength)), '[]'),
           array_agg(DISTINCT l.note_id) FILTER (WHERE l.note_id <> ALL (p_seen))
    INTO v_links, v_new
    FROM link_notes(p_tenant, p_project, p_sources, p_terms, p_total, p_average, p_known, p_scope, p_limit) l;
    RETURN json_build_object('links', v_links, 'found', CASE WHEN v_new IS NOT NULL THEN recall_notes(
        p_tenant, p_project, p_terms, p_model, p_dimensions, p_vector, 0, p_reach, p_known, p_scope, v_new)::json END);
END
$$;
