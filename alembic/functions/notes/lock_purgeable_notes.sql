-- Locks and returns up to p_limit notes of a project deleted before p_before that are not protected, the oldest first.
-- p_step restricts them to notes with mentions (links), with vectors or queue entries (vectors), or without any (notes).
-- Reads them in batches so that protected notes do not use up the limit.
-- Runs with the rights of its caller, who holds the lock of the project.
CREATE OR REPLACE FUNCTION lock_purgeable_notes(p_tenant text, p_project text, p_step text, p_before timestamptz, p_limit int)
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_found uuid[] := '{}';
    v_after timestamptz := '-infinity';
    v_last uuid := '00000000-0000-0000-0000-000000000000';
    v_batch uuid[];
BEGIN
    WHILE cardinality(v_found) < p_limit LOOP
        v_batch := ARRAY(
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
        EXIT WHEN cardinality(v_batch) = 0;
        SELECT n.deleted_at, n.note_id INTO v_after, v_last FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = ANY (v_batch) ORDER BY n.deleted_at DESC, n.note_id DESC LIMIT 1;
        v_found := v_found || ARRAY(
            SELECT u.id FROM unnest(v_batch) WITH ORDINALITY u(id, place)
            WHERE u.id <> ALL (find_protected_notes(p_tenant, p_project, v_batch)) ORDER BY u.place);
        EXIT WHEN cardinality(v_batch) < p_limit;
    END LOOP;
    RETURN v_found[1:p_limit];
END
$$;
