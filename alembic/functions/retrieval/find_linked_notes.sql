-- Returns as JSON which notes share rare names with the sources (see link_notes), and those of them that are not in
-- p_seen as candidates (see find_notes). Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_linked_notes(
    p_context read_context, p_terms text[], p_vector vector_query, p_sources uuid[], p_seen uuid[], p_total bigint,
    p_average double precision, p_reach int, p_limit int)
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
    FROM link_notes(p_context, p_sources, p_terms, p_total, p_average, p_limit) l;
    RETURN json_build_object('links', v_links, 'found', CASE WHEN v_new IS NOT NULL THEN find_notes(
        p_context, p_terms, p_vector, 0, p_reach, v_new)::json END);
END
$$;
