-- Returns the notes or facts of a project that may contain one of these names (see name_key), by the index of search:
-- those with the first and the last word of a name that always is a term of its own. NULL when the index does not know
-- all of them: a name without such a word, or units that are being indexed again. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_candidates(p_tenant text, p_project text, p_kind text, p_names text[])
RETURNS uuid[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    v_language regconfig := project_language(p_tenant, p_project);
    v_name text;
    v_terms text[];
    v_keys text[];
    v_space text;
    v_found uuid[] := '{}';
BEGIN
    IF EXISTS (SELECT FROM jobs j
               WHERE j.tenant_id = p_tenant AND j.project_id = p_project AND j.kind = 'reindex'
                 AND j.status IN ('pending', 'leased', 'failed', 'dead')) THEN
        RETURN NULL;
    END IF;
    FOREACH v_name IN ARRAY p_names LOOP
        v_terms := ARRAY(
            SELECT t.lexeme
            FROM regexp_matches(v_name, '(?:^| )([a-zͰ-ӿ][0-9a-zͰ-ӿ]*)(?= |$)', 'g') WITH ORDINALITY w(word, place)
            CROSS JOIN LATERAL unnest(to_tsvector(v_language, w.word[1])) t
            ORDER BY w.place);
        v_terms := array_remove(ARRAY[v_terms[1], v_terms[cardinality(v_terms)]], NULL) || ARRAY(
            SELECT DISTINCT t.lexeme FROM regexp_matches(v_name, format('[%s]', unspaced_letters()), 'g') m(letter)
            CROSS JOIN LATERAL unnest(to_tsvector(v_language, m.letter[1])) t);
        IF cardinality(v_terms) = 0 THEN
            RETURN NULL;
        END IF;
        -- Under the marks of what all users share, and of every user.
        FOREACH v_space IN ARRAY ARRAY[p_project, p_project || '/*'] LOOP
            v_keys := lexical_keys(p_tenant, v_space, v_terms);
            IF p_kind = 'note' THEN
                v_found := v_found || ARRAY(
                    SELECT n.note_id FROM memory_notes n
                    WHERE owned_keys(n.tenant_id, n.project_id, n.user_id, tsvector_to_array(n.terms)) @> v_keys
                      AND n.tenant_id IS NOT DISTINCT FROM p_tenant AND n.project_id IS NOT DISTINCT FROM p_project);
            ELSE
                v_found := v_found || ARRAY(
                    SELECT f.fact_id FROM graph_facts f
                    WHERE owned_keys(f.tenant_id, f.project_id, f.user_id, tsvector_to_array(f.terms)) @> v_keys
                      AND f.tenant_id IS NOT DISTINCT FROM p_tenant AND f.project_id IS NOT DISTINCT FROM p_project);
            END IF;
        END LOOP;
    END LOOP;
    RETURN v_found;
END
$$;
