-- Deletes the vectors and queue entries of units and models that are gone, of facts of no more confidence than p_min,
-- and the queue entries of hidden units; returns how many of each. Part of reconcile_embeddings.
CREATE OR REPLACE FUNCTION prune_embeddings(
    p_tenant text, p_project text, p_main uuid, p_min double precision, OUT unqueued bigint, OUT removed bigint)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM embedding_queue q
    WHERE q.tenant_id = p_tenant AND q.project_id = p_project
      AND (NOT EXISTS (SELECT FROM embedding_models m WHERE m.model_id = q.model_id)
           OR (q.owner_kind = 'note' AND NOT EXISTS (
                   SELECT FROM memory_notes n
                   WHERE n.tenant_id = p_tenant AND n.note_id = q.owner_id AND n.deleted_at IS NULL
                     AND n.suppression = 0))
           OR (q.owner_kind = 'fact' AND NOT EXISTS (
                   SELECT FROM graph_facts f
                   WHERE f.tenant_id = p_tenant AND f.fact_id = q.owner_id AND f.confidence > p_min
                     AND f.suppression = 0))
           OR (q.owner_kind = 'card' AND NOT EXISTS (
                   SELECT FROM memory_cards c
                   WHERE c.tenant_id = p_tenant AND c.card_id = q.owner_id AND c.suppression = 0))
           OR (q.owner_kind = 'object' AND NOT EXISTS (
                   SELECT FROM graph_objects o
                   WHERE o.tenant_id = p_tenant AND o.branch_id = p_main AND o.canonical_id = q.owner_id
                     AND o.deleted_at IS NULL AND o.embed_text IS NOT NULL AND o.suppression = 0)));
    GET DIAGNOSTICS unqueued = ROW_COUNT;

    DELETE FROM embeddings e
    WHERE e.tenant_id = p_tenant AND e.project_id = p_project
      AND (NOT EXISTS (SELECT FROM embedding_models m WHERE m.model_id = e.model_id)
           OR (e.owner_kind = 'note' AND NOT EXISTS (
                   SELECT FROM memory_notes n
                   WHERE n.tenant_id = p_tenant AND n.note_id = e.owner_id AND n.deleted_at IS NULL))
           OR (e.owner_kind = 'fact' AND NOT EXISTS (
                   SELECT FROM graph_facts f
                   WHERE f.tenant_id = p_tenant AND f.fact_id = e.owner_id AND f.confidence > p_min))
           OR (e.owner_kind = 'card' AND NOT EXISTS (
                   SELECT FROM memory_cards c WHERE c.tenant_id = p_tenant AND c.card_id = e.owner_id))
           OR (e.owner_kind = 'object' AND NOT EXISTS (
                   SELECT FROM graph_objects o
                   WHERE o.tenant_id = p_tenant AND o.branch_id = p_main AND o.canonical_id = e.owner_id
                     AND o.deleted_at IS NULL AND o.embed_text IS NOT NULL)));
    GET DIAGNOSTICS removed = ROW_COUNT;
END
$$;
