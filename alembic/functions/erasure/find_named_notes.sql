-- Returns the notes of these scopes (NULL: all) that name an entity in their text, author, thread, tags or earlier
-- versions, and up to 100 others that possibly do in their text, author or tags (see name_patterns). A name that is too
-- short or too common to be searched for still is an author's. With p_all every text is read, and only what is certain is
-- returned. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_named_notes(
    p_tenant text, p_project text, p_entity uuid, p_scopes text[], p_all boolean, OUT certain uuid[],
    OUT possible uuid[])
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_certain text;
    v_possible text;
    v_names text[];
    v_candidates uuid[];
    v_authors text[];
    v_words text[];
BEGIN
    SELECT p.certain, p.possible INTO v_certain, v_possible FROM name_patterns(p_tenant, p_entity) p;
    SELECT n.names INTO v_names FROM find_names(p_tenant, p_entity) n;
    IF NOT p_all THEN
        v_candidates := find_candidates(p_tenant, p_project, 'note', v_names);
    END IF;
    v_authors := ARRAY(
        SELECT a.author FROM (
            SELECT DISTINCT n.author FROM memory_notes n
            WHERE n.tenant_id = p_tenant AND n.project_id = p_project
              AND (v_candidates IS NULL OR n.note_id = ANY (v_candidates))
            OFFSET 0
        ) a
        WHERE name_key(a.author) = ANY (v_names));
    WITH texts AS (
        -- Commas between the fields, so that the end of one and the beginning of the next are no name.
        SELECT n.note_id, n.author,
               fold_name(concat_ws(',,', n.author, array_to_string(n.tags, ',,'), n.content)) AS words
        FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
          AND (v_candidates IS NULL OR n.note_id = ANY (v_candidates))
        OFFSET 0
    ), matched AS (
        SELECT t.note_id,
               coalesce(t.words ~ v_certain, false) OR coalesce(t.author = ANY (v_authors), false) AS named,
               NOT p_all AND t.words ~ v_possible AS possibly
        FROM texts t
    )
    SELECT array_agg(m.note_id) FILTER (WHERE m.named),
           (array_agg(m.note_id) FILTER (WHERE NOT m.named AND m.possibly))[:100]
    INTO certain, possible FROM matched m;
    certain := certain || ARRAY(
        SELECT n.note_id FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = ANY (find_threads(p_tenant, p_project, v_names, v_certain))
          AND (p_scopes IS NULL OR n.scope = ANY (p_scopes)));
    -- What a note said when it was created is either its text or the old text of a change. In ASCII a name has to be
    -- there word by word, which is found faster than the name.
    v_words := ARRAY(SELECT '%' || split_part(n.name, ' ', 1) || '%' FROM unnest(v_names) n(name));
    certain := certain || ARRAY(
        SELECT h.note_id FROM (
            SELECT h.note_id, h.before, concat_ws(',,', h.old_content, h.new_content, h.reason, h.before) AS words
            FROM memory_history h
            WHERE h.tenant_id = p_tenant AND h.project_id = p_project AND (p_scopes IS NULL OR h.scope = ANY (p_scopes))
              AND (p_all OR h.event <> 'created')
            OFFSET 0
        ) h
        WHERE ((octet_length(h.words) <> length(h.words) OR lower(h.words COLLATE "C") LIKE ANY (v_words))
               AND fold_name(h.words) ~ v_certain)
           -- In the JSON text, so that only values that JSON escapes are decoded.
           OR (position('\' IN h.before::text) > 0 AND json_matches(h.before, v_certain)));
    -- A note that is certain in one way is not only possible in another.
    possible := ARRAY(SELECT p.id FROM unnest(possible) p(id) WHERE p.id <> ALL (certain));
END
$$;
