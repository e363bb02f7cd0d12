-- Deletes what a user has besides notes and facts, and revokes the keys that act for them. Returns how many rows of each
-- table were deleted. Runs with the settings and rights of erase_user.
CREATE OR REPLACE FUNCTION erase_user_rows(
    p_tenant text, p_project text, p_user text, p_job uuid, p_now timestamptz)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_table text;
    v_count bigint;
    v_counts jsonb := '{}';
BEGIN
    FOREACH v_table IN ARRAY ARRAY[
        'memory_reviews', 'recall_traces', 'memory_cards', 'embeddings', 'document_notes', 'documents',
        'graph_entity_aliases'] LOOP
        EXECUTE format('DELETE FROM %I x WHERE x.tenant_id = $1 AND x.project_id = $2 AND x.user_id = $3', v_table)
        USING p_tenant, p_project, p_user;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_counts := v_counts || jsonb_build_object(v_table, v_count);
    END LOOP;
    UPDATE graph_entities e SET merged_into = NULL
    WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.user_id = p_user AND e.merged_into IS NOT NULL;
    DELETE FROM graph_entities e WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.user_id = p_user;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('graph_entities', v_count);
    DELETE FROM jobs j
    WHERE j.tenant_id = p_tenant AND j.project_id = p_project AND j.user_id = p_user AND j.job_id <> p_job;
    -- The job itself keeps no id of the user either.
    UPDATE jobs j SET payload = j.payload - 'user_id' WHERE j.tenant_id = p_tenant AND j.job_id = p_job;
    DELETE FROM idempotency_keys k
    WHERE k.tenant_id = p_tenant AND right(k.path, length(p_user) + 6) = ' user:' || p_user;
    UPDATE api_keys k SET revoked_at = coalesce(k.revoked_at, p_now), previous_hash = NULL, name = '', user_id = ''
    WHERE k.tenant_id = p_tenant AND k.user_id = p_user AND (k.project_id = p_project OR k.project_id IS NULL);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_counts || jsonb_build_object('api_keys', v_count);
END
$$;
