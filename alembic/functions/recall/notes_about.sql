-- Returns the notes that facts about an entity cite, the latest first, of the facts and notes that the caller may read:
-- mentions alone could reveal private facts of others. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION notes_about(
    p_tenant text, p_project text, p_entity uuid, p_scope text, p_known timestamptz, p_limit int)
RETURNS SETOF uuid
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
BEGIN
    RETURN QUERY
    SELECT m.note_id FROM note_entity_mentions m
    WHERE m.tenant_id = p_tenant AND m.project_id = p_project AND m.entity_id = p_entity
      AND EXISTS (
          SELECT FROM memory_notes n
          WHERE n.tenant_id = p_tenant AND n.note_id = m.note_id
            AND (p_scope IS NULL OR n.scope = p_scope)
            AND (n.deleted_at IS NULL OR n.deleted_at > p_known) AND (p_known IS NULL OR n.created_at <= p_known)
          OFFSET 0)
      AND EXISTS (
          SELECT FROM graph_fact_evidence v
          CROSS JOIN LATERAL (
              SELECT FROM graph_facts f
              WHERE f.tenant_id = p_tenant AND f.fact_id = v.fact_id
                AND (f.subject_entity_id = p_entity OR f.object_entity_id = p_entity)
                AND (p_known IS NULL OR f.created_at <= p_known)
              OFFSET 0) f
          WHERE v.tenant_id = p_tenant AND v.note_id = m.note_id
          OFFSET 0)
    ORDER BY m.note_id DESC LIMIT p_limit;
END
$$;
