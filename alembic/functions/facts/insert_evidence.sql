-- Links written facts to the notes they cite, and those notes to the entities of the facts.
-- Raises 40001 when a cited note is hidden or deleted meanwhile. Runs with the settings and rights of place_facts.
CREATE OR REPLACE FUNCTION insert_evidence(
    p_tenant text, p_project text, p_drafts fact_draft[], p_steps fact_step[], p_evidence json)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    -- Waits for a transaction that hides or deletes one of the notes.
    PERFORM FROM (SELECT DISTINCT v.note_id FROM json_to_recordset(p_evidence) AS v(idx int, note_id uuid)
                  JOIN unnest(p_steps) w ON w.idx = v.idx ORDER BY v.note_id) v
    LEFT JOIN LATERAL (
        SELECT n.suppression, n.deleted_at FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = v.note_id FOR SHARE) n ON true
    WHERE n.suppression IS DISTINCT FROM 0 OR n.deleted_at IS NOT NULL;
    IF FOUND THEN
        RAISE EXCEPTION 'a note was hidden or deleted while it was cited' USING ERRCODE = '40001';
    END IF;
    INSERT INTO graph_fact_evidence (
        tenant_id, project_id, evidence_id, fact_id, note_id, created_at, suppression, user_id)
    SELECT p_tenant, p_project, make_id(), w.fact_id, v.note_id, min(d.created_at), min(d.suppression), owner_user()
    FROM json_to_recordset(p_evidence) AS v(idx int, note_id uuid)
    JOIN unnest(p_steps) w ON w.idx = v.idx
    JOIN unnest(p_drafts) d ON d.idx = v.idx
    GROUP BY w.fact_id, v.note_id
    ON CONFLICT (tenant_id, fact_id, note_id) DO NOTHING;
    PERFORM insert_mentions(
        p_tenant, p_project, array_agg(v.note_id), array_agg(x.entity_id),
        array_agg(d.source IS DISTINCT FROM 'pipeline'), array_agg(d.created_at))
    FROM json_to_recordset(p_evidence) AS v(idx int, note_id uuid)
    JOIN unnest(p_drafts) d ON d.idx = v.idx
    CROSS JOIN LATERAL (VALUES (d.subject_id), (d.object_id)) x(entity_id)
    WHERE d.suppression = 0;
END
$$;
