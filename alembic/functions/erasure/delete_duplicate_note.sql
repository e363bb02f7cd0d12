-- Deletes a note that says the same as another one, like any deleted note with its history; facts that cite it cite the
-- other one too. Runs with the settings and rights of hide_or_restore_notes.
CREATE OR REPLACE FUNCTION delete_duplicate_note(
    p_tenant text, p_agent text, p_note uuid, p_kept uuid, p_now timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    INSERT INTO graph_fact_evidence (
        tenant_id, project_id, evidence_id, fact_id, note_id, created_at, suppression, user_id)
    SELECT p_tenant, v.project_id, make_id(), v.fact_id, p_kept, v.created_at, v.suppression, v.user_id
    FROM graph_fact_evidence v WHERE v.tenant_id = p_tenant AND v.note_id = p_note
    ON CONFLICT (tenant_id, fact_id, note_id) DO NOTHING;
    INSERT INTO memory_history (
        tenant_id, history_id, project_id, note_id, agent_id, scope, garden_id, event, version, changed_by, reason,
        old_content, created_at, user_id)
    SELECT p_tenant, make_id(), n.project_id, n.note_id, n.agent_id, n.scope, n.garden_id, 'merged', n.version + 1,
           p_agent, 'an older note says the same', n.content, p_now, n.user_id
    FROM memory_notes n WHERE n.tenant_id = p_tenant AND n.note_id = p_note;
    UPDATE memory_notes n SET deleted_at = p_now, updated_at = p_now, version = n.version + 1
    WHERE n.tenant_id = p_tenant AND n.note_id = p_note;
END
$$;
