-- What ranking needs of notes, as JSON: of those in p_wanted and the p_near nearest by meaning, each with its neighbours in
-- its thread up to p_reach, in the order of the thread: the query's terms in each, its length, how much it tells, its
-- cosine. What stands in several windows is told in each of them: to read a note once more costs more than to tell it
-- again. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION recall_notes(
    p_tenant text, p_project text, p_terms text[], p_model smallint, p_dimensions int, p_vector text, p_near int,
    p_reach int, p_known timestamptz, p_scope text, p_wanted uuid[])
RETURNS text
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_query vector := p_vector::vector;
    v_hits uuid[] := p_wanted;
BEGIN
    PERFORM check_as_of(p_tenant, p_project, p_known);
    IF v_query IS NOT NULL AND p_near > 0 THEN
        v_hits := v_hits || ARRAY(
            SELECT n.owner_id FROM near_units(
                p_tenant, p_project, 'note', p_model, p_dimensions, p_vector, p_near, p_scope, NULL, p_known) n);
    END IF;
    RETURN (
        SELECT coalesce(json_agg(w.units ORDER BY h.id), '[]')::text
        FROM (SELECT DISTINCT h.id FROM unnest(v_hits) h(id)) h
        CROSS JOIN LATERAL (
            SELECT n.note_id, n.thread_id, n.position, n.terms_length, n.telling, n.terms, n.updated_at, n.version
            FROM memory_notes n
            WHERE n.tenant_id = p_tenant AND n.note_id = h.id AND n.project_id = p_project AND n.suppression = 0
              AND (n.deleted_at IS NULL OR n.deleted_at > p_known)
              AND (p_known IS NULL OR n.created_at <= p_known) AND (p_scope IS NULL OR n.scope = p_scope)
            OFFSET 0) n
        CROSS JOIN LATERAL (
            SELECT json_agg(json_build_array(
                       u.note_id, u.terms_length, CASE WHEN u.position IS NOT NULL THEN u.telling END,
                       ts_filter(setweight(
                           CASE WHEN u.updated_at > p_known AND u.version > 1
                                THEN note_terms_then(p_tenant, p_project, u.note_id, p_known)
                                ELSE u.terms END, 'A', p_terms), '{a}')::text,
                       e.cosine) ORDER BY u.place) AS units
            FROM (
                SELECT 0 AS place, n.note_id, n.position, n.terms_length, n.telling, n.terms, n.updated_at, n.version
                UNION ALL
                SELECT -row_number() OVER (), x.* FROM (
                    SELECT x.note_id, x.position, x.terms_length, x.telling, x.terms, x.updated_at, x.version
                    FROM memory_notes x
                    WHERE x.tenant_id = p_tenant AND x.project_id = p_project AND x.thread_id = n.thread_id
                      AND (x.position, x.note_id) < (n.position, n.note_id) AND x.suppression = 0
                      AND (x.deleted_at IS NULL OR x.deleted_at > p_known)
                      AND (p_known IS NULL OR x.created_at <= p_known) AND (p_scope IS NULL OR x.scope = p_scope)
                    ORDER BY x.position DESC, x.note_id DESC LIMIT p_reach) x
                UNION ALL
                SELECT row_number() OVER (), x.* FROM (
                    SELECT x.note_id, x.position, x.terms_length, x.telling, x.terms, x.updated_at, x.version
                    FROM memory_notes x
                    WHERE x.tenant_id = p_tenant AND x.project_id = p_project AND x.thread_id = n.thread_id
                      AND (x.position, x.note_id) > (n.position, n.note_id) AND x.suppression = 0
                      AND (x.deleted_at IS NULL OR x.deleted_at > p_known)
                      AND (p_known IS NULL OR x.created_at <= p_known) AND (p_scope IS NULL OR x.scope = p_scope)
                    ORDER BY x.position, x.note_id LIMIT p_reach) x
            ) u
            -- Meaning reaches two steps far (see threads.py). Asked inside: vectors are dear, and must not be read
            -- before it turns out that nobody needs them.
            LEFT JOIN LATERAL (
                SELECT -(e.vector <#> v_query) AS cosine FROM embeddings e
                WHERE v_query IS NOT NULL AND abs(u.place) <= 2
                  AND e.tenant_id = p_tenant AND e.model_id = p_model AND e.view = 'self'
                  AND e.owner_kind = 'note' AND e.owner_id = u.note_id
                  -- Of other words than it says, or said then, a vector tells nothing; nor of another author or time.
                  AND (u.updated_at <= least(p_known, e.embedded_at) OR NOT EXISTS (
                      SELECT FROM memory_notes o
                      CROSS JOIN LATERAL note_as_of(p_tenant, o.note_id, least(p_known, e.embedded_at)) t
                      WHERE o.tenant_id = p_tenant AND o.note_id = u.note_id
                        AND (coalesce(t.content, o.content) <> o.content OR t.before ?| '{author,occurred_at}')))
                OFFSET 0) e ON true
        ) w);
END
$$;
