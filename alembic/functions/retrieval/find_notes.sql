-- Returns note candidates as JSON: the notes in p_wanted and the p_near nearest by vector, each as a window of arrays
-- in the order of NoteRow (app/retrieval/candidates.py): the note and its neighbours up to p_reach, in thread order. A
-- note in several windows is repeated in each, which costs less than finding out. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_notes(
    p_context read_context, p_terms text[], p_vector vector_query, p_near int, p_reach int, p_wanted uuid[])
RETURNS text
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_query vector := p_vector.vector::vector;
    v_model smallint := p_vector.model_id;
    v_tenant text := p_context.tenant_id;
    v_project text := p_context.project_id;
    v_known timestamptz := p_context.known_at;
    v_scope text := p_context.scope;
    v_hits uuid[] := p_wanted;
BEGIN
    PERFORM check_as_of(v_tenant, v_project, v_known);
    IF v_query IS NOT NULL AND p_near > 0 THEN
        v_hits := v_hits || ARRAY(
            SELECT n.owner_id FROM nearest_units(p_context, NULL, p_vector, 'note', p_near) n);
    END IF;
    RETURN (
        SELECT coalesce(json_agg(w.units ORDER BY h.id), '[]')::text
        FROM (SELECT DISTINCT h.id FROM unnest(v_hits) h(id)) h
        CROSS JOIN LATERAL (
            SELECT n.note_id, n.thread_id, n.user_id, n.position, n.terms_length, n.telling, n.terms, n.updated_at,
                   n.version
            FROM memory_notes n
            WHERE n.tenant_id = v_tenant AND n.note_id = h.id AND n.project_id = v_project
              AND note_stands(n.created_at, n.deleted_at, v_known) AND (v_scope IS NULL OR n.scope = v_scope)
            OFFSET 0) n
        CROSS JOIN LATERAL (
            SELECT json_agg(json_build_array(
                       u.note_id, u.terms_length, CASE WHEN u.position IS NOT NULL THEN u.telling END,
                       ts_filter(setweight(
                           CASE WHEN u.updated_at > v_known AND u.version > 1
                                THEN note_terms_as_of(v_tenant, v_project, u.note_id, v_known)
                                ELSE u.terms END, 'A', p_terms), '{a}')::text,
                       e.cosine) ORDER BY u.place) AS units
            FROM (
                SELECT 0 AS place, n.note_id, n.position, n.terms_length, n.telling, n.terms, n.updated_at, n.version
                UNION ALL
                SELECT -row_number() OVER (), x.* FROM (
                    SELECT x.note_id, x.position, x.terms_length, x.telling, x.terms, x.updated_at, x.version
                    FROM memory_notes x
                    WHERE x.tenant_id = v_tenant AND x.project_id = v_project AND x.thread_id = n.thread_id
                      AND x.user_id = n.user_id AND (x.position, x.note_id) < (n.position, n.note_id)
                      AND note_stands(x.created_at, x.deleted_at, v_known) AND (v_scope IS NULL OR x.scope = v_scope)
                    ORDER BY x.position DESC, x.note_id DESC LIMIT p_reach) x
                UNION ALL
                SELECT row_number() OVER (), x.* FROM (
                    SELECT x.note_id, x.position, x.terms_length, x.telling, x.terms, x.updated_at, x.version
                    FROM memory_notes x
                    WHERE x.tenant_id = v_tenant AND x.project_id = v_project AND x.thread_id = n.thread_id
                      AND x.user_id = n.user_id AND (x.position, x.note_id) > (n.position, n.note_id)
                      AND note_stands(x.created_at, x.deleted_at, v_known) AND (v_scope IS NULL OR x.scope = v_scope)
                    ORDER BY x.position, x.note_id LIMIT p_reach) x
            ) u
            -- Cosines are smoothed over two steps (see threads.py). Read in here, since vectors are expensive and only
            -- needed for these neighbours.
            LEFT JOIN LATERAL (
                SELECT -(e.vector <#> v_query) AS cosine FROM embeddings e
                WHERE v_query IS NOT NULL AND abs(u.place) <= 2
                  AND e.tenant_id = v_tenant AND e.model_id = v_model AND e.view = 'self'
                  AND e.owner_kind = 'note' AND e.owner_id = u.note_id
                  -- Not a vector of another text, author or time than the note has, or had then.
                  AND (u.updated_at <= least(v_known, e.embedded_at) OR NOT EXISTS (
                      SELECT FROM memory_notes o
                      CROSS JOIN LATERAL note_as_of(v_tenant, o.note_id, least(v_known, e.embedded_at)) t
                      WHERE o.tenant_id = v_tenant AND o.note_id = u.note_id
                        AND (coalesce(t.content, o.content) <> o.content OR t.before ?| '{author,occurred_at}')))
                OFFSET 0) e ON true
        ) w);
END
$$;
