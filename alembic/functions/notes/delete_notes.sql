-- Deletes those of the notes that are live and that the caller can see, with every note derived from them, and retracts
-- the facts that no live note supports any more: the one rule of deleting, whoever deletes. Appends to the histories;
-- p_proposal is what an extraction proposed. Returns the named notes, the derived ones and the facts. The caller has
-- checked the rights in gardens. Security definer, because private facts of other agents may rest on a note.
CREATE OR REPLACE FUNCTION delete_notes(
    p_notes uuid[], p_changed_by text, p_reason text, p_proposal jsonb, p_key text,
    OUT deleted uuid[], OUT derived uuid[], OUT facts uuid[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_gardens uuid[] := coalesce(nullif(current_setting('app.gardens', true), '')::uuid[], '{}');
    v_user text := current_setting('app.user_id', true);
    v_sources uuid[];
    v_now timestamptz;
BEGIN
    deleted := ARRAY(
        SELECT n.note_id FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.note_id = ANY (p_notes)
          AND n.deleted_at IS NULL AND n.suppression = 0 AND is_own_row(n.user_id, v_user)
          AND is_visible(n.scope, n.agent_id, n.garden_id, n.user_id, v_agent, v_gardens, v_user)
        ORDER BY n.note_id FOR UPDATE);
    -- Derived notes remember the note whose deletion they followed, so that recovering it brings them back.
    SELECT coalesce(array_agg(d.note_id), '{}'), coalesce(array_agg(d.source), '{}') INTO derived, v_sources
    FROM (
        WITH RECURSIVE family(note_id, source, depth) AS (
            SELECT n.note_id, n.derived_from, 1 FROM memory_notes n
            WHERE n.tenant_id = v_tenant AND n.derived_from = ANY (deleted) AND n.deleted_at IS NULL
            UNION ALL
            SELECT n.note_id, f.source, f.depth + 1 FROM family f
            JOIN memory_notes n ON n.tenant_id = v_tenant AND n.derived_from = f.note_id AND n.deleted_at IS NULL
        )
        SELECT DISTINCT ON (f.note_id) f.note_id, f.source FROM family f ORDER BY f.note_id, f.depth DESC
    ) d;
    v_now := clock_timestamp();
    WITH gone AS (
        UPDATE memory_notes n
        SET deleted_at = v_now, updated_at = v_now, version = n.version + 1, deleted_with = d.source
        FROM unnest(deleted || derived) u(note_id)
        LEFT JOIN unnest(derived, v_sources) d(note_id, source) ON d.note_id = u.note_id
        WHERE n.tenant_id = v_tenant AND n.note_id = u.note_id AND n.deleted_at IS NULL
        RETURNING n.*
    )
    INSERT INTO memory_history (
        tenant_id, history_id, project_id, note_id, agent_id, scope, garden_id, suppression, event, version,
        changed_by, reason, old_content, proposal, created_at, user_id)
    SELECT v_tenant, make_id(), g.project_id, g.note_id, g.agent_id, g.scope, g.garden_id, g.suppression, 'deleted',
           g.version, p_changed_by,
           CASE WHEN g.note_id = ANY (deleted) THEN p_reason ELSE 'its source note was deleted' END, g.content,
           CASE WHEN g.note_id = ANY (deleted) THEN p_proposal END, v_now, g.user_id
    FROM gone g;
    derived := ARRAY(SELECT u.id FROM unnest(derived) u(id) WHERE u.id <> ALL (deleted) ORDER BY u.id);
    facts := retract_unsupported(v_tenant, v_project, p_changed_by, p_key, deleted || derived, p_reason);
    PERFORM queue_units(v_tenant, v_project, 'note', deleted || derived);
END
$$;
