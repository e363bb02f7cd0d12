-- Which notes share rare names with a hit: for each source the notes that have one of its terms, the strongest first.
-- p_sources are notes already found; their names are words that begin with a capital letter, and years. A term counts
-- when it is not the query's, and some but few other notes have it; the five rarest of each source.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION link_notes(
    p_tenant text, p_project text, p_sources uuid[], p_query text[], p_total bigint, p_average double precision,
    p_known timestamptz, p_scope text, p_limit int)
RETURNS TABLE (source_id uuid, note_id uuid, strength double precision)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_language regconfig := project_language(p_tenant, p_project);
    v_source record;
    v_terms text[];
    v_known text[];
    v_counts bigint[];
BEGIN
    FOR v_source IN
        SELECT n.note_id, concat_ws(' ', n.author, n.content) AS said FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_sources) ORDER BY n.note_id
    LOOP
        v_terms := ARRAY(
            SELECT t.lexeme FROM unnest(to_tsvector(v_language, fold_words((
                SELECT string_agg(w.words[1], ' ') FROM regexp_matches(
                    left(v_source.said, 4000), '\m([[:upper:]][[:alnum:]''’-]*|\d{4})\M', 'g') w(words))))) t
            WHERE t.lexeme <> ALL (p_query)
            ORDER BY t.lexeme LIMIT 32);
        v_known := ARRAY(
            SELECT l.term FROM lexical_frequencies l
            WHERE l.tenant_id = p_tenant AND l.project_id = p_project AND l.kind = 'note' AND l.term = ANY (v_terms)
            ORDER BY l.term);
        -- What is not known to be frequent is rare, or was so when it was last counted.
        v_terms := ARRAY(SELECT t.term FROM unnest(v_terms) t(term) WHERE t.term <> ALL (v_known) ORDER BY t.term);
        v_counts := count_documents('note', v_terms, 401);
        v_terms := v_terms || v_known;
        v_counts := v_counts || ARRAY(
            SELECT l.documents FROM lexical_frequencies l
            WHERE l.tenant_id = p_tenant AND l.project_id = p_project AND l.kind = 'note' AND l.term = ANY (v_known)
            ORDER BY l.term);
        SELECT array_agg(c.term ORDER BY c.documents, c.term), array_agg(c.documents ORDER BY c.documents, c.term)
        INTO v_terms, v_counts
        FROM (SELECT t.term, t.documents FROM unnest(v_terms, v_counts) t(term, documents)
              WHERE t.documents BETWEEN 2 AND least(greatest(2, 0.05 * p_total), 400)
              ORDER BY t.documents, t.term LIMIT 5) c;
        CONTINUE WHEN v_terms IS NULL;
        RETURN QUERY
        SELECT v_source.note_id, m.note_id, m.score
        FROM match_notes(
            v_terms, ARRAY(SELECT ln(1 + (p_total - d + 0.5) / (d + 0.5)) ^ 2 FROM unnest(v_counts) d), v_terms,
            p_average, 1000, p_limit, p_known, p_scope) m
        WHERE m.note_id <> v_source.note_id;
    END LOOP;
END
$$;
