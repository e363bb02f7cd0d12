-- Retention, step 1: deletes up to p_limit mentions of notes deleted before p_before, and entities that only these notes
-- introduced and nothing refers to, in the scope's tenant or project. Protected notes are kept. Returns the counts.
CREATE OR REPLACE FUNCTION purge_links(p_before timestamptz, p_limit int, OUT mentions bigint, OUT entities bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text;
    v_notes uuid[];
    v_entities uuid[];
    v_kept uuid[];
    v_count bigint;
BEGIN
    mentions := 0;
    entities := 0;
    FOR v_project IN SELECT * FROM lock_purgeable_projects(v_tenant, nullif(current_setting('app.project_id', true), '')) LOOP
        EXIT WHEN mentions >= p_limit;
        v_notes := lock_purgeable_notes(v_tenant, v_project, 'links', p_before, p_limit);
        CONTINUE WHEN cardinality(v_notes) = 0;
        WITH pick AS (
            SELECT m.note_id, m.entity_id FROM note_entity_mentions m
            WHERE m.tenant_id = v_tenant AND m.note_id = ANY (v_notes)
            ORDER BY m.note_id, m.entity_id LIMIT p_limit - mentions
        ), deleted AS (
            DELETE FROM note_entity_mentions m USING pick
            WHERE m.tenant_id = v_tenant AND m.note_id = pick.note_id AND m.entity_id = pick.entity_id
            RETURNING m.note_id, m.entity_id
        )
        -- Only entities as new as the note: an older one has another origin.
        SELECT count(*), array_agg(DISTINCT g.entity_id) FILTER (WHERE e.created_at >= n.created_at)
        INTO v_count, v_entities
        FROM deleted g
        JOIN memory_notes n ON n.tenant_id = v_tenant AND n.note_id = g.note_id
        JOIN graph_entities e ON e.tenant_id = v_tenant AND e.entity_id = g.entity_id;
        mentions := mentions + v_count;
        -- An entity that a concurrent writer has locked is in use, so it is kept.
        v_entities := ARRAY(
            SELECT e.entity_id FROM graph_entities e
            WHERE e.tenant_id = v_tenant AND e.entity_id = ANY (v_entities)
            ORDER BY e.entity_id FOR UPDATE SKIP LOCKED);
        v_kept := referenced_entities(v_tenant, v_project, v_entities);
        DELETE FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.entity_id = ANY (v_entities) AND e.suppression = 0
          AND e.merged_into IS NULL AND e.erased_scopes IS NULL AND e.held_scopes IS NULL AND e.decoy_id IS NULL
          AND e.object_canonical_id IS NULL AND e.entity_id <> ALL (v_kept);
        GET DIAGNOSTICS v_count = ROW_COUNT;
        entities := entities + v_count;
    END LOOP;
END
$$;
