-- Returns the notes most similar to a text, redacted: of the best sixty by terms and the nearest sixty by vector, by .7
-- of the cosine and .3 of the share in the best lexical score, either alone where only one is known; none below .3.
-- Only notes of the same scope and owner, since private notes must not change what others read; without the skipped
-- notes and chunks of documents. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION similar_notes(
    p_tenant text, p_project text, p_text text, p_model smallint, p_dimensions int, p_vector text, p_scope text,
    p_owner text, p_skipped uuid[], p_patterns text[], p_limit int)
RETURNS TABLE (note_id uuid, type text, content text, version int, score double precision)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_query vector := p_vector::vector;
    v_terms record;
    v_found uuid[] := '{}';
    v_scores double precision[] := '{}';
    v_best double precision;
    v_near uuid[] := '{}';
    v_patterns text[] := p_patterns || ARRAY(
        SELECT r.pattern FROM embedding_redactions r WHERE r.tenant_id = p_tenant ORDER BY r.created_at, r.pattern_id);
BEGIN
    SELECT w.* INTO v_terms FROM weigh_terms(p_tenant, p_project, 'note', p_text, 64) w;
    SELECT coalesce(array_agg(m.note_id), '{}'), coalesce(array_agg(m.score), '{}'), max(m.score)
    INTO v_found, v_scores, v_best
    FROM match_notes(
        ROW(v_terms.terms, ARRAY(SELECT inverse_frequency(d, v_terms.total) FROM unnest(v_terms.documents) d),
            v_terms.average)::term_query,
        choose_terms(v_terms.terms, v_terms.documents, 200), 1000, 60, NULL, p_scope) m
    WHERE m.note_id <> ALL (p_skipped);
    IF v_query IS NOT NULL THEN
        v_near := ARRAY(
            SELECT n.owner_id FROM nearest_units(
                ROW(p_tenant, p_project, NULL, NULL, p_scope)::read_context, NULL,
                ROW(p_model, p_dimensions, p_vector)::vector_query, 'note', 60) n);
    END IF;
    RETURN QUERY
    SELECT n.note_id, n.type, (redact_text(n.content, v_patterns)).words, n.version, s.score
    FROM (
        SELECT u.id, max(u.score) / nullif(v_best, 0) AS lexical
        FROM (SELECT f.id, f.score FROM unnest(v_found, v_scores) f(id, score)
              UNION ALL SELECT f.id, NULL FROM unnest(v_near) f(id)) u
        WHERE u.id <> ALL (p_skipped) GROUP BY u.id
    ) h
    CROSS JOIN LATERAL (
        SELECT n.note_id, n.type, n.content, n.version FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = h.id AND n.project_id = p_project AND n.deleted_at IS NULL
          AND n.suppression = 0 AND n.scope = p_scope AND n.owner_key = p_owner AND n.type <> 'document_chunk'
        OFFSET 0) n
    LEFT JOIN LATERAL (
        SELECT -(e.vector <#> v_query) AS cosine FROM embeddings e
        WHERE v_query IS NOT NULL
          AND e.tenant_id = p_tenant AND e.model_id = p_model AND e.view = 'self' AND e.owner_kind = 'note'
          AND e.owner_id = h.id
        OFFSET 0) e ON true
    CROSS JOIN LATERAL (
        SELECT CASE WHEN e.cosine IS NULL THEN h.lexical WHEN h.lexical IS NULL THEN e.cosine
                    ELSE 0.7 * e.cosine + 0.3 * h.lexical END AS score) s
    WHERE s.score >= 0.3
    ORDER BY s.score DESC, n.note_id LIMIT p_limit;
END
$$;
