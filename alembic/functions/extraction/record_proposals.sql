-- Appends every proposal of an extraction to the history: of the derived note where it created one (p_created), else of
-- the source note. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION record_proposals(
    p_source memory_notes, p_derived json, p_created uuid[], p_records json, p_now timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    INSERT INTO memory_history (
        tenant_id, history_id, project_id, note_id, agent_id, scope, garden_id, event, version, changed_by, reason,
        new_content, proposal, created_at, user_id)
    SELECT p_source.tenant_id, make_id(), p_source.project_id, l.note_id, p_source.agent_id, p_source.scope,
           p_source.garden_id, l.event, l.version, 'pipeline', l.reason, l.new_content, l.proposal, p_now,
           p_source.user_id
    FROM (
        SELECT d.note_id, 'created' AS event, 1 AS version, NULL AS reason, d.content AS new_content, d.proposal
        FROM json_to_recordset(p_derived) AS d(note_id uuid, content text, proposal jsonb)
        WHERE d.note_id = ANY (p_created)
        UNION ALL
        SELECT p_source.note_id, 'none', p_source.version, d.proposal ->> 'reason', NULL,
               d.proposal || jsonb_strip_nulls(jsonb_build_object('outcome', 'deduped', 'existing_note_id', (
                   SELECT n.note_id FROM memory_notes n
                   WHERE n.tenant_id = p_source.tenant_id AND n.project_id = p_source.project_id
                     AND n.content_hash = d.hash AND n.scope = p_source.scope AND n.owner_key = p_source.owner_key
                     AND n.deleted_at IS NULL
                   ORDER BY n.created_at LIMIT 1)))
        FROM json_to_recordset(p_derived) AS d(note_id uuid, hash text, proposal jsonb)
        WHERE d.note_id <> ALL (p_created)
        UNION ALL
        SELECT p_source.note_id, 'none', p_source.version, r.reason, NULL, r.proposal
        FROM json_to_recordset(p_records) AS r(reason text, proposal jsonb)) l;
END
$$;
