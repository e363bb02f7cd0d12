-- Returns the notes that other projects share and that contain terms of the query, the best by BM25. Reads at most
-- 4,000 notes; the terms are those of the caller's language. Called by find_shared_notes, as the owner.
CREATE OR REPLACE FUNCTION match_shared_notes(
    p_tenant text, p_project text, p_scope text, p_terms term_query, p_limit int)
RETURNS uuid[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_average double precision := p_terms.average;
    v_keys text[];
BEGIN
    v_keys := lexical_keys(p_tenant, '', choose_terms(p_terms.terms, ARRAY(
        SELECT (SELECT count(*) FROM (
                    SELECT FROM memory_notes n
                    WHERE lexical_keys(n.tenant_id, '', tsvector_to_array(n.terms))
                          && lexical_keys(p_tenant, '', ARRAY[t.term])
                      AND n.tenant_id IS NOT DISTINCT FROM p_tenant AND n.project_id <> p_project
                      AND is_shared(n.scope, n.garden_id, n.user_id, n.suppression) AND n.deleted_at IS NULL
                    LIMIT 1000) d)
        FROM unnest(p_terms.terms) WITH ORDINALITY t(term, place) ORDER BY t.place), 2000));
    RETURN ARRAY(
        WITH found AS MATERIALIZED (
            SELECT n.note_id, n.terms_length, ts_filter(setweight(n.terms, 'A', p_terms.terms), '{a}') AS terms
            FROM memory_notes n
            WHERE lexical_keys(n.tenant_id, '', tsvector_to_array(n.terms)) && v_keys
              AND n.tenant_id IS NOT DISTINCT FROM p_tenant AND n.project_id <> p_project
              AND is_shared(n.scope, n.garden_id, n.user_id, n.suppression) AND n.deleted_at IS NULL
              AND (p_scope IS NULL OR n.scope = p_scope)
            LIMIT 4000
        )
        SELECT w.note_id
        FROM (SELECT f.note_id, f.terms_length, unnest(f.terms) AS word FROM found f OFFSET 0) w
        JOIN unnest(p_terms.terms, p_terms.idf) t(term, idf) ON t.term = (w.word).lexeme
        GROUP BY w.note_id
        ORDER BY sum(bm25_score(t.idf, cardinality((w.word).positions), w.terms_length, v_average)) DESC, w.note_id
        LIMIT p_limit);
END
$$;
