-- Returns for each source the notes that share rare names with it, the strongest first. Names are words that begin with
-- a capital letter, and years. Of each source the five rarest count that are not in the query and that some but few
-- other notes contain. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION link_notes(
    p_context read_context, p_sources uuid[], p_query text[], p_total bigint, p_average double precision, p_limit int)
RETURNS TABLE (source_id uuid, note_id uuid, strength double precision)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := p_context.tenant_id;
    v_project text := p_context.project_id;
    v_language regconfig := project_language(v_tenant, v_project);
    v_source record;
    v_terms text[];
    v_known text[];
    v_counts bigint[];
BEGIN
    FOR v_source IN
        SELECT n.note_id, concat_ws(' ', n.author, n.content) AS words FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.note_id = ANY (p_sources) ORDER BY n.note_id
    LOOP
        v_terms := ARRAY(
            SELECT t.lexeme FROM unnest(to_tsvector(v_language, fold_words((
                SELECT string_agg(w.words[1], ' ') FROM regexp_matches(
                    left(v_source.words, 4000), '\m([[:upper:]][[:alnum:]''’-]*|\d{4})\M', 'g') w(words))))) t
            WHERE t.lexeme <> ALL (p_query)
            ORDER BY t.lexeme LIMIT 32);
        v_known := ARRAY(
            SELECT l.term FROM lexical_frequencies l
            WHERE l.tenant_id = v_tenant AND l.project_id = v_project AND l.kind = 'note' AND l.term = ANY (v_terms)
            ORDER BY l.term);
        -- A term without a stored frequency is rare, or was when terms were last counted.
        v_terms := ARRAY(SELECT t.term FROM unnest(v_terms) t(term) WHERE t.term <> ALL (v_known) ORDER BY t.term);
        v_counts := count_documents('note', v_terms, 401);
        v_terms := v_terms || v_known;
        v_counts := v_counts || ARRAY(
            SELECT l.documents FROM lexical_frequencies l
            WHERE l.tenant_id = v_tenant AND l.project_id = v_project AND l.kind = 'note' AND l.term = ANY (v_known)
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
            ROW(v_terms, ARRAY(SELECT inverse_frequency(d, p_total) ^ 2 FROM unnest(v_counts) d),
                p_average)::term_query,
            v_terms, 1000, p_limit, p_context.known_at, p_context.scope) m
        WHERE m.note_id <> v_source.note_id;
    END LOOP;
END
$$;
