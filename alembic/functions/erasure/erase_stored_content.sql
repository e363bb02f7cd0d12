-- Removes an entity from stored responses and from jobs: by id anywhere in the tenant, by name in its own project.
-- Returns how many rows of each table were changed. Runs with the settings and rights of erase_entity.
CREATE OR REPLACE FUNCTION erase_stored_content(
    p_tombstone tombstones, p_job uuid, p_ids uuid[], p_documents uuid[], p_pattern text, p_values text,
    p_now timestamptz)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := p_tombstone.tenant_id;
    v_project text := p_tombstone.project_id;
    v_count bigint;
    v_counts jsonb := '{}';
    v_gone bytea := convert_to(
        '{"code":"not_found","message":"What this answered is no longer there.","details":{}}', 'UTF8');
BEGIN
    UPDATE idempotency_keys k SET status = 404, body = v_gone
    WHERE k.tenant_id = v_tenant AND NOT k.sealed AND k.body IS NOT NULL
      AND (contains_ids(encode(k.body, 'escape'), p_ids || p_documents)
           OR (p_tombstone.named AND right(k.path, length(v_project) + 1) = ' ' || v_project
               AND json_matches(convert_from(k.body, 'UTF8')::jsonb, p_pattern)));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('idempotency_keys', v_count);
    -- A note that stays no longer waits for a job that is removed.
    UPDATE memory_notes n SET extraction_status = 'none'
    WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.extraction_status = 'pending'
      AND EXISTS (
        SELECT FROM jobs j
        WHERE j.tenant_id = v_tenant AND j.kind = 'extract' AND j.status IN ('pending', 'leased')
          AND j.dedupe_key = n.note_id::text
          AND (contains_ids(concat_ws(' ', j.payload, j.result, j.last_error), p_ids)
               OR (p_tombstone.named AND fold_name(j.last_error) ~ p_pattern)));
    UPDATE jobs j
    SET payload = '{}', last_error = NULL, result = NULL,
        dedupe_key = CASE WHEN NOT contains_ids(j.dedupe_key, p_ids) THEN j.dedupe_key END,
        -- A worker that runs such a job now must not write its result later.
        status = CASE WHEN j.status = 'pending' OR (j.status = 'leased' AND j.kind IN ('extract', 'graph_link'))
                      THEN 'cancelled' ELSE j.status END,
        lease_owner = CASE WHEN j.kind NOT IN ('extract', 'graph_link') THEN j.lease_owner END,
        lease_expires_at = CASE WHEN j.kind NOT IN ('extract', 'graph_link') THEN j.lease_expires_at END,
        finished_at = CASE WHEN j.status = 'pending' OR (j.status = 'leased' AND j.kind IN ('extract', 'graph_link'))
                           THEN p_now ELSE j.finished_at END
    WHERE j.tenant_id = v_tenant AND j.job_id <> p_job
      AND (contains_ids(concat_ws(' ', j.payload, j.result, j.last_error), p_ids)
           OR (p_tombstone.named AND j.project_id = v_project
               AND (json_matches(j.payload, p_pattern) OR json_matches(j.result, p_pattern)
                    OR fold_name(j.last_error) ~ p_pattern))
           -- A value alone does not cancel a job that is still to run.
           OR (j.status NOT IN ('pending', 'leased') AND j.project_id = v_project
               AND (json_matches(j.payload, p_values) OR json_matches(j.result, p_values)
                    OR fold_name(j.last_error) ~ p_values)));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('jobs', v_count);
    RETURN v_counts;
END
$$;
