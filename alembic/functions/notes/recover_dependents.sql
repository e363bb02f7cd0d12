-- Recovers what was deleted or retracted with a note that is live again: the notes derived from it, unless another live
-- note says the same by now, and the facts that rest on them. Returns the derived notes and the facts.
-- Security definer, because private facts of other agents may rest on a note.
CREATE OR REPLACE FUNCTION recover_dependents(
    p_note uuid, p_changed_by text, p_key text, OUT derived uuid[], OUT facts uuid[])
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
    v_now timestamptz := clock_timestamp();
BEGIN
    PERFORM FROM memory_notes n
    WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.note_id = p_note AND n.deleted_at IS NULL
      AND n.suppression = 0 AND is_visible(n.scope, n.agent_id, n.garden_id, n.user_id, v_agent, v_gardens, v_user);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'recover_dependents needs a live note' USING ERRCODE = 'insufficient_privilege';
    END IF;
    WITH pick AS (
        SELECT n.note_id FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.deleted_with = p_note AND n.deleted_at IS NOT NULL
          AND NOT EXISTS (
              SELECT FROM memory_notes x
              WHERE x.tenant_id = v_tenant AND x.project_id = n.project_id AND x.content_hash = n.content_hash
                AND x.scope = n.scope AND x.owner_key = n.owner_key AND x.deleted_at IS NULL)
        ORDER BY n.note_id FOR UPDATE
    ), back AS (
        UPDATE memory_notes n
        SET deleted_at = NULL, deleted_with = NULL, updated_at = v_now, version = n.version + 1
        FROM pick
        WHERE n.tenant_id = v_tenant AND n.note_id = pick.note_id
        RETURNING n.*
    ), recorded AS (
        INSERT INTO memory_history (
            tenant_id, history_id, project_id, note_id, agent_id, scope, garden_id, suppression, event, version,
            changed_by, reason, old_content, new_content, created_at, user_id)
        SELECT v_tenant, make_id(), b.project_id, b.note_id, b.agent_id, b.scope, b.garden_id, b.suppression,
               'recovered', b.version, p_changed_by, 'its source note was recovered', b.content, b.content, v_now,
               b.user_id
        FROM back b
        RETURNING note_id
    )
    SELECT coalesce(array_agg(r.note_id ORDER BY r.note_id), '{}') INTO derived FROM recorded r;
    PERFORM queue_units(v_tenant, v_project, 'note', derived);
    facts := restore_supported(v_tenant, v_project, p_changed_by, p_key, derived || p_note);
END
$$;
