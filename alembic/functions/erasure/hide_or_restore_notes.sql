-- Hides or restores notes, their history, mentions, evidence, reviews and the documents they are chunks of, as the
-- tombstones of the entities they mention demand. When a note with the same text was written while one was hidden, the
-- newer of the two is deleted. Runs with the rights of its caller, who has locked the entity.
CREATE OR REPLACE FUNCTION hide_or_restore_notes(p_tenant text, p_agent text, p_notes uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_change record;
    v_twin record;
BEGIN
    FOR v_change IN
        SELECT n.*, l.level
        FROM memory_notes n
        CROSS JOIN LATERAL (
            SELECT CASE WHEN bool_or(h.level = 1) THEN 1 WHEN bool_or(h.level = 2) THEN 2 ELSE 0 END::smallint AS level
            FROM note_entity_mentions m
            JOIN graph_entities e ON e.tenant_id = p_tenant AND e.entity_id = m.entity_id
            CROSS JOIN LATERAL (SELECT hidden_level(e.erased_scopes, e.held_scopes, n.scope) AS level) h
            WHERE m.tenant_id = p_tenant AND m.note_id = n.note_id
        ) l
        WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes) AND n.suppression <> l.level
        ORDER BY n.created_at, n.note_id
    LOOP
        IF v_change.level = 0 AND v_change.deleted_at IS NULL THEN
            SELECT n.* INTO v_twin FROM memory_notes n
            WHERE n.tenant_id = p_tenant AND n.project_id = v_change.project_id AND n.scope = v_change.scope
              AND n.owner_key = v_change.owner_key AND n.thread_id IS NOT DISTINCT FROM v_change.thread_id
              AND n.position IS NOT DISTINCT FROM v_change.position AND n.content_hash = v_change.content_hash
              AND n.deleted_at IS NULL AND n.suppression = 0;
            IF FOUND AND v_twin.created_at < v_change.created_at THEN
                PERFORM delete_duplicate_note(p_tenant, p_agent, v_change.note_id, v_twin.note_id, v_now);
            ELSIF FOUND THEN
                PERFORM delete_duplicate_note(p_tenant, p_agent, v_twin.note_id, v_change.note_id, v_now);
            END IF;
        END IF;
        UPDATE memory_notes n SET suppression = v_change.level
        WHERE n.tenant_id = p_tenant AND n.note_id = v_change.note_id;
        IF v_change.level = 0 THEN
            PERFORM queue_units(p_tenant, v_change.project_id, 'note', ARRAY[v_change.note_id]);
        ELSE
            DELETE FROM embedding_queue q
            WHERE q.tenant_id = p_tenant AND q.project_id = v_change.project_id
              AND q.model_id IN (SELECT m.model_id FROM embedding_models m) AND q.owner_kind = 'note'
              AND q.owner_id = v_change.note_id;
        END IF;
    END LOOP;
    UPDATE memory_history x SET suppression = n.suppression FROM memory_notes n
    WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes)
      AND x.tenant_id = p_tenant AND x.note_id = n.note_id AND x.suppression <> n.suppression;
    -- Marking a vector as hidden would cost the index as much as making it again.
    DELETE FROM embeddings x USING memory_notes n
    WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes) AND n.suppression > 0 AND x.tenant_id = p_tenant
      AND x.model_id IN (SELECT m.model_id FROM embedding_models m) AND x.view = 'self' AND x.owner_kind = 'note'
      AND x.owner_id = n.note_id;
    UPDATE note_entity_mentions x
    SET suppression = stricter_level(n.suppression, hidden_level(e.erased_scopes, e.held_scopes, n.scope))
    FROM memory_notes n, graph_entities e
    WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes)
      AND x.tenant_id = p_tenant AND x.note_id = n.note_id
      AND e.tenant_id = p_tenant AND e.entity_id = x.entity_id
      AND x.suppression <> stricter_level(n.suppression, hidden_level(e.erased_scopes, e.held_scopes, n.scope));
    UPDATE graph_fact_evidence x SET suppression = stricter_level(f.suppression, n.suppression)
    FROM memory_notes n, graph_facts f
    WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes)
      AND x.tenant_id = p_tenant AND x.note_id = n.note_id
      AND f.tenant_id = p_tenant AND f.fact_id = x.fact_id
      AND x.suppression <> stricter_level(f.suppression, n.suppression);
    UPDATE memory_reviews x SET suppression = stricter_level(a.suppression, b.suppression)
    FROM memory_notes a, memory_notes b
    WHERE x.tenant_id = p_tenant AND (x.note_id = ANY (p_notes) OR x.target_note_id = ANY (p_notes))
      AND a.tenant_id = p_tenant AND a.note_id = x.note_id
      AND b.tenant_id = p_tenant AND b.note_id = x.target_note_id
      AND x.suppression <> stricter_level(a.suppression, b.suppression);
    PERFORM hide_or_restore_documents(p_tenant, ARRAY(
        SELECT DISTINCT x.document_id FROM document_notes x
        WHERE x.tenant_id = p_tenant AND x.note_id = ANY (p_notes)));
END
$$;
