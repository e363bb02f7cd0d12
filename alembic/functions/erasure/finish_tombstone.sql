-- Completes a new tombstone: drops stored responses that show what it hides, has the words of the project counted
-- again, records it in the audit log, and queues the job that erases. Runs with the rights of issue_tombstone.
CREATE OR REPLACE FUNCTION finish_tombstone(
    p_tenant text, p_tombstone uuid, p_job uuid, p_facts uuid[], p_notes uuid[], p_objects uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_made tombstones;
BEGIN
    SELECT t.* INTO v_made FROM tombstones t WHERE t.tenant_id = p_tenant AND t.tombstone_id = p_tombstone;
    PERFORM drop_stored_responses(
        p_tenant, v_made.entity_id, p_notes, p_notes || p_facts || p_objects || v_made.entity_id);
    PERFORM record_event('tombstone_issued', v_made.key_id, jsonb_build_object(
        'tombstone_id', p_tombstone, 'entity_id', v_made.entity_id, 'legal_hold', v_made.legal_hold,
        'erase', v_made.erase));
    IF v_made.erase THEN
        -- Without a project, so that agents of the project cannot see the job.
        INSERT INTO jobs (tenant_id, job_id, agent_id, kind, payload, dedupe_key, priority, created_by, available_at,
                          created_at)
        VALUES (p_tenant, p_job, v_made.created_by, 'erase',
                jsonb_build_object('tombstone_id', p_tombstone, 'project_id', v_made.project_id), p_tombstone::text, 5,
                v_made.key_id, v_made.erase_at, v_made.created_at);
    END IF;
    IF v_made.legal_hold THEN
        PERFORM record_event('rtbf_legal_hold_issued', v_made.key_id, jsonb_build_object(
            'tombstone_id', p_tombstone, 'entity_id', v_made.entity_id));
    END IF;
    PERFORM recount_terms(p_tenant, v_made.project_id);
END
$$;
