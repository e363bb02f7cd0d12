-- Returns the notes of a project in threads whose id matches a name (see name_patterns): ids in ASCII by the index of
-- their words, others one by one. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_threads(p_tenant text, p_project text, p_names text[], p_certain text)
RETURNS uuid[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    v_name text;
    v_words text[];
    v_found uuid[];
BEGIN
    v_found := ARRAY(
        SELECT n.note_id FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND octet_length(n.thread_id) <> length(n.thread_id)
          AND fold_name(n.thread_id) ~ p_certain);
    FOREACH v_name IN ARRAY p_names LOOP
        v_words := ARRAY(SELECT w.word FROM string_to_table(v_name, ' ') w(word) WHERE w.word ~ '^[0-9a-z]+$');
        IF cardinality(v_words) > 0 THEN
            v_words := lexical_keys(p_tenant, p_project, v_words);
            v_found := v_found || ARRAY(
                SELECT n.note_id FROM memory_notes n
                WHERE lexical_keys(n.tenant_id, n.project_id,
                                   regexp_split_to_array(lower(n.thread_id), '(?:%20|[^0-9a-z])+')) @> v_words
                  AND n.tenant_id IS NOT DISTINCT FROM p_tenant AND n.project_id IS NOT DISTINCT FROM p_project
                  AND fold_name(n.thread_id) ~ p_certain AND n.thread_id IS NOT NULL);
        END IF;
    END LOOP;
    RETURN v_found;
END
$$;
