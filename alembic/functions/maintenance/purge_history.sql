-- Retention, step 4: deletes up to p_limit history entries of notes older than p_before, the oldest first, except those
-- of hidden or protected notes, in the scope's tenant or project. Returns how many were deleted.
CREATE OR REPLACE FUNCTION purge_history(p_before timestamptz, p_limit int)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text;
    v_after uuid;
    v_batch uuid[];
    v_protected uuid[];
    v_count bigint;
    v_total bigint := 0;
BEGIN
    FOR v_project IN SELECT * FROM lock_purgeable_projects(v_tenant, nullif(current_setting('app.project_id', true), '')) LOOP
        v_after := '00000000-0000-0000-0000-000000000000';
        WHILE v_total < p_limit LOOP
            v_batch := ARRAY(
                SELECT h.history_id FROM memory_history h
                WHERE h.tenant_id = v_tenant AND h.history_id > v_after AND h.history_id < first_id(p_before)
                  AND h.project_id = v_project AND h.created_at < p_before AND h.suppression = 0
                ORDER BY h.history_id LIMIT p_limit - v_total);
            EXIT WHEN cardinality(v_batch) = 0;
            v_after := v_batch[cardinality(v_batch)];
            v_protected := find_protected_notes(v_tenant, v_project, ARRAY(
                SELECT DISTINCT h.note_id FROM memory_history h
                WHERE h.tenant_id = v_tenant AND h.history_id = ANY (v_batch)));
            DELETE FROM memory_history h
            WHERE h.tenant_id = v_tenant AND h.history_id = ANY (v_batch) AND h.note_id <> ALL (v_protected);
            GET DIAGNOSTICS v_count = ROW_COUNT;
            v_total := v_total + v_count;
        END LOOP;
    END LOOP;
    RETURN v_total;
END
$$;
