-- Removes the names of an entity from reasons, resolution notes and sources of its project, except those that a legal
-- hold keeps. Returns the facts whose source was removed, and how many registered sources were deleted.
-- Runs with the settings and rights of erase_entity.
CREATE OR REPLACE FUNCTION erase_labels(
    p_tombstone tombstones, p_pattern text, p_now timestamptz, OUT facts uuid[], OUT sources_deleted bigint)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := p_tombstone.tenant_id;
    v_project text := p_tombstone.project_id;
BEGIN
    -- Not NULL first: is_held would be asked of every row whose text is NULL.
    UPDATE fact_retractions r SET reason = NULL
    WHERE r.tenant_id = v_tenant AND r.project_id = v_project AND r.reason IS NOT NULL
      AND fold_name(r.reason) ~ p_pattern AND NOT is_held(v_tenant, r.fact_id);
    UPDATE fact_conflicts c SET resolution_note = NULL
    WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.resolution_note IS NOT NULL
      AND fold_name(c.resolution_note) ~ p_pattern AND NOT is_held(v_tenant, c.fact_a);
    WITH changed AS (
        UPDATE graph_facts f SET source = NULL, updated_at = p_now
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.source IS NOT NULL
          AND fold_name(f.source) ~ p_pattern AND NOT is_held(v_tenant, f.fact_id)
        RETURNING f.fact_id
    ) SELECT array_agg(c.fact_id) INTO facts FROM changed c;
    UPDATE tombstones t SET reason = ''
    WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND fold_name(t.reason) ~ p_pattern;
    UPDATE tombstone_revocations r SET reason = ''
    WHERE r.tenant_id = v_tenant AND r.project_id = v_project AND fold_name(r.reason) ~ p_pattern;
    DELETE FROM sources s
    WHERE s.tenant_id = v_tenant AND s.project_id = v_project AND fold_name(s.source) ~ p_pattern;
    GET DIAGNOSTICS sources_deleted = ROW_COUNT;
END
$$;
