-- Revokes a tombstone and restores what no other one hides; erasures that a revoked hold blocked continue. Returns why
-- it is refused, or NULL.
CREATE OR REPLACE FUNCTION revoke_tombstone(p_tombstone uuid, p_id uuid, p_reason text, p_key text)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_tombstone tombstones;
    v_facts uuid[];
    v_notes uuid[];
    v_documents uuid[];
    v_objects uuid[];
    v_now timestamptz;
BEGIN
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR NO KEY UPDATE;
    SELECT t.* INTO v_tombstone FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND t.tombstone_id = p_tombstone;
    IF NOT FOUND THEN
        RETURN 'tombstone_not_found';
    END IF;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id = v_tombstone.entity_id FOR UPDATE;
    SELECT t.* INTO v_tombstone FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.tombstone_id = p_tombstone FOR UPDATE;
    IF v_tombstone.erased_at IS NOT NULL THEN
        RETURN 'tombstone_erased';
    END IF;
    IF EXISTS (SELECT FROM tombstone_revocations r
               WHERE r.tenant_id = v_tenant AND r.tombstone_id = p_tombstone) THEN
        RETURN 'tombstone_already_revoked';
    END IF;
    v_now := clock_timestamp();
    INSERT INTO tombstone_revocations (tenant_id, revocation_id, project_id, tombstone_id, reason, revoked_by, key_id,
                                       revoked_at)
    VALUES (v_tenant, p_id, v_project, p_tombstone, p_reason, v_agent, p_key, v_now);
    -- Mentions by name exist only for tombstones.
    IF NOT EXISTS (SELECT FROM tombstones t
                   WHERE t.tenant_id = v_tenant AND t.entity_id = v_tombstone.entity_id AND t.named
                     AND t.erased_at IS NULL
                     AND NOT EXISTS (SELECT FROM tombstone_revocations r
                                     WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id)) THEN
        WITH gone AS (
            DELETE FROM note_entity_mentions m
            WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id AND m.by_name
            RETURNING m.note_id
        ) SELECT array_agg(g.note_id) INTO v_notes FROM gone g;
        WITH gone AS (
            DELETE FROM graph_fact_mentions m
            WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id
            RETURNING m.fact_id
        ) SELECT array_agg(g.fact_id) INTO v_facts FROM gone g;
        WITH gone AS (
            DELETE FROM document_entity_mentions m
            WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id
            RETURNING m.document_id
        ) SELECT array_agg(g.document_id) INTO v_documents FROM gone g;
        WITH gone AS (
            DELETE FROM object_entity_mentions m
            WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id
            RETURNING m.canonical_id
        ) SELECT array_agg(g.canonical_id) INTO v_objects FROM gone g;
    END IF;
    PERFORM hide_or_restore_entity(v_tenant, v_project, v_agent, v_tombstone.entity_id);
    PERFORM hide_or_restore_facts(v_tenant, v_project, v_agent, v_facts);
    PERFORM hide_or_restore_notes(v_tenant, v_agent, v_notes);
    PERFORM hide_or_restore_documents(v_tenant, v_documents);
    PERFORM hide_or_restore_objects(v_tenant, v_objects);
    PERFORM recount_terms(v_tenant, v_project);
    PERFORM record_event('tombstone_revoked', p_key, jsonb_build_object(
        'tombstone_id', p_tombstone, 'entity_id', v_tombstone.entity_id));
    UPDATE jobs j SET status = 'cancelled', finished_at = v_now
    WHERE j.tenant_id = v_tenant AND j.kind = 'erase' AND j.status = 'pending' AND j.dedupe_key = p_tombstone::text;
    IF v_tombstone.legal_hold THEN
        UPDATE jobs j
        SET status = 'pending', attempts = 0, available_at = v_now, finished_at = NULL, last_error = NULL
        FROM tombstones t
        WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND t.erase AND t.erased_at IS NULL
          AND NOT EXISTS (SELECT FROM tombstone_revocations r
                          WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id)
          AND j.tenant_id = v_tenant AND j.kind = 'erase' AND j.dedupe_key = t.tombstone_id::text
          AND j.status = 'failed';
    END IF;
    RETURN NULL;
END
$$;
