-- Notes of a project that were deleted before p_before and that nothing keeps, the longest deleted first, locked; p_step
-- says which of them: those that still have mentions (links), vectors or a place in their queue (vectors), or neither
-- (notes). Looks at so many at a time, so that what is kept does not stand in the way of the rest.
-- Runs with the rights of its caller, who holds the project.
CREATE OR REPLACE FUNCTION due_notes(p_tenant text, p_project text, p_step text, p_before timestamptz, p_limit int)
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_due uuid[] := '{}';
    v_after timestamptz := '-infinity';
    v_last uuid := '00000000-0000-0000-0000-000000000000';
    v_looked uuid[];
BEGIN
    WHILE cardinality(v_due) < p_limit LOOP
        v_looked := ARRAY(
            SELECT n.note_id FROM memory_notes n
            WHERE n.tenant_id = p_tenant AND n.deleted_at < p_before AND (n.deleted_at, n.note_id) > (v_after, v_last)
              AND n.project_id = p_project AND n.suppression = 0
              AND CASE p_step
                  WHEN 'links' THEN EXISTS (
                      SELECT FROM note_entity_mentions m WHERE m.tenant_id = p_tenant AND m.note_id = n.note_id)
                  WHEN 'vectors' THEN EXISTS (
                          SELECT FROM embeddings e
                          WHERE e.tenant_id = p_tenant AND e.model_id IN (SELECT m.model_id FROM embedding_models m)
                            AND e.view IN ('self', 'context') AND e.owner_kind = 'note' AND e.owner_id = n.note_id)
                      OR EXISTS (
                          SELECT FROM embedding_queue q
                          WHERE q.tenant_id = p_tenant AND q.project_id = p_project
                            AND q.model_id IN (SELECT m.model_id FROM embedding_models m)
                            AND q.owner_kind = 'note' AND q.owner_id = n.note_id)
                  ELSE NOT EXISTS (
                          SELECT FROM note_entity_mentions m WHERE m.tenant_id = p_tenant AND m.note_id = n.note_id)
                      AND NOT EXISTS (
                          SELECT FROM embeddings e
                          WHERE e.tenant_id = p_tenant AND e.model_id IN (SELECT m.model_id FROM embedding_models m)
                            AND e.view IN ('self', 'context') AND e.owner_kind = 'note' AND e.owner_id = n.note_id)
                  END
            ORDER BY n.deleted_at, n.note_id LIMIT p_limit FOR UPDATE SKIP LOCKED);
        EXIT WHEN cardinality(v_looked) = 0;
        SELECT n.deleted_at, n.note_id INTO v_after, v_last FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = ANY (v_looked) ORDER BY n.deleted_at DESC, n.note_id DESC LIMIT 1;
        v_due := v_due || ARRAY(
            SELECT u.id FROM unnest(v_looked) WITH ORDINALITY u(id, place)
            WHERE u.id <> ALL (kept_notes(p_tenant, p_project, v_looked)) ORDER BY u.place);
        EXIT WHEN cardinality(v_looked) < p_limit;
    END LOOP;
    RETURN v_due[1:p_limit];
END
$$;
