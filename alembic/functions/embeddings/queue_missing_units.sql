-- Queues every unit that has no vector of a model and is not queued for it; returns how many. Part of
-- reconcile_embeddings.
CREATE OR REPLACE FUNCTION queue_missing_units(p_tenant text, p_project text, p_main uuid, p_min double precision)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
    v_queued bigint;
BEGIN
    INSERT INTO embedding_queue (tenant_id, project_id, owner_kind, owner_id, model_id, queued_at, available_at)
    SELECT p_tenant, p_project, u.kind, u.id, m.model_id, v_now, v_now
    FROM (
        SELECT 'note' AS kind, n.note_id AS id FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND n.deleted_at IS NULL AND n.suppression = 0
        UNION ALL
        SELECT 'fact', f.fact_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.confidence > p_min AND f.suppression = 0
        UNION ALL
        SELECT 'card', c.card_id FROM memory_cards c
        WHERE c.tenant_id = p_tenant AND c.project_id = p_project AND c.suppression = 0
        UNION ALL
        SELECT 'object', o.canonical_id FROM graph_objects o
        WHERE o.tenant_id = p_tenant AND o.branch_id = p_main AND o.deleted_at IS NULL AND o.suppression = 0
          AND o.embed_text IS NOT NULL
    ) u
    CROSS JOIN embedding_models m
    WHERE NOT EXISTS (
        SELECT FROM embeddings e
        WHERE e.tenant_id = p_tenant AND e.model_id = m.model_id AND e.view = 'self' AND e.owner_kind = u.kind
          AND e.owner_id = u.id)
    ORDER BY u.id, m.model_id
    ON CONFLICT (tenant_id, project_id, model_id, owner_kind, owner_id) DO NOTHING;
    GET DIAGNOSTICS v_queued = ROW_COUNT;
    RETURN v_queued;
END
$$;
