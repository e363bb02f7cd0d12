-- Repairs the terms of up to p_limit notes of the project, those without terms first, then the newest; returns how many
-- were checked and how many differed. Runs as the owner, since private notes are included.
CREATE OR REPLACE FUNCTION check_terms(p_limit int, OUT looked bigint, OUT repaired bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_ids uuid[];
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RAISE EXCEPTION 'check_terms needs tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;
    v_ids := ARRAY(
        SELECT n.note_id FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.deleted_at IS NULL AND n.suppression = 0
          AND n.terms_length = 0
        ORDER BY n.note_id DESC LIMIT p_limit);
    v_ids := v_ids || ARRAY(
        SELECT n.note_id FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.deleted_at IS NULL AND n.suppression = 0
          AND n.terms_length > 0
        ORDER BY n.created_at DESC, n.note_id DESC LIMIT p_limit - cardinality(v_ids));
    looked := cardinality(v_ids);
    WITH due AS (
        SELECT n.note_id FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_ids)
          AND n.terms <> note_terms(v_tenant, v_project, n.author, n.occurred_at, n.tags, n.content)
        ORDER BY n.note_id FOR UPDATE SKIP LOCKED
    )
    UPDATE memory_notes n
    SET terms = note_terms(v_tenant, v_project, n.author, n.occurred_at, n.tags, n.content),
        telling = count_content_terms(v_tenant, v_project, n.content)
    FROM due WHERE n.tenant_id = v_tenant AND n.note_id = due.note_id;
    GET DIAGNOSTICS repaired = ROW_COUNT;
END
$$;
