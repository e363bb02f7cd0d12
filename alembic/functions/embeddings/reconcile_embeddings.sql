-- Puts a project's vectors and their queue in step with its notes, facts, cards and objects (of these what stands on
-- main and has a text to be embedded): what is gone loses its vectors and its place in the queue, what has no vector of a model and does not wait for one is queued, vectors are as hidden as what
-- they were made of, and are counted anew. A fact believed no more than p_min has none.
-- Of the owner, since private units are embedded too; answers how much was out of step, and nothing else.
CREATE OR REPLACE FUNCTION reconcile_embeddings(
    p_min double precision, OUT unqueued bigint, OUT removed bigint, OUT queued bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_main uuid := (
        SELECT b.branch_id FROM branches b
        WHERE b.tenant_id = v_tenant AND b.project_id = v_project AND b.name = 'main');
BEGIN
    -- Held from here on: who stores or removes vectors meanwhile adds their part when this is done.
    INSERT INTO embedding_counts AS c (
        tenant_id, project_id, model_id, view, vectors, notes, facts, counted_at)
    SELECT v_tenant, v_project, m.model_id, 'self', 0, 0, 0, v_now FROM embedding_models m ORDER BY m.model_id
    ON CONFLICT (tenant_id, project_id, model_id, view) DO UPDATE SET counted_at = excluded.counted_at;

    DELETE FROM embedding_queue q
    WHERE q.tenant_id = v_tenant AND q.project_id = v_project
      AND (NOT EXISTS (SELECT FROM embedding_models m WHERE m.model_id = q.model_id)
           OR (q.owner_kind = 'note' AND NOT EXISTS (
                   SELECT FROM memory_notes n
                   WHERE n.tenant_id = v_tenant AND n.note_id = q.owner_id AND n.deleted_at IS NULL
                     AND n.suppression = 0))
           OR (q.owner_kind = 'fact' AND NOT EXISTS (
                   SELECT FROM graph_facts f
                   WHERE f.tenant_id = v_tenant AND f.fact_id = q.owner_id AND f.confidence > p_min
                     AND f.suppression = 0))
           OR (q.owner_kind = 'card' AND NOT EXISTS (
                   SELECT FROM memory_cards c
                   WHERE c.tenant_id = v_tenant AND c.card_id = q.owner_id AND c.suppression = 0))
           OR (q.owner_kind = 'object' AND NOT EXISTS (
                   SELECT FROM graph_objects o
                   WHERE o.tenant_id = v_tenant AND o.branch_id = v_main AND o.canonical_id = q.owner_id
                     AND o.deleted_at IS NULL AND o.embed_text IS NOT NULL AND o.suppression = 0)));
    GET DIAGNOSTICS unqueued = ROW_COUNT;

    DELETE FROM embeddings e
    WHERE e.tenant_id = v_tenant AND e.project_id = v_project
      AND (NOT EXISTS (SELECT FROM embedding_models m WHERE m.model_id = e.model_id)
           OR (e.owner_kind = 'note' AND NOT EXISTS (
                   SELECT FROM memory_notes n
                   WHERE n.tenant_id = v_tenant AND n.note_id = e.owner_id AND n.deleted_at IS NULL))
           OR (e.owner_kind = 'fact' AND NOT EXISTS (
                   SELECT FROM graph_facts f
                   WHERE f.tenant_id = v_tenant AND f.fact_id = e.owner_id AND f.confidence > p_min))
           OR (e.owner_kind = 'card' AND NOT EXISTS (
                   SELECT FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.card_id = e.owner_id))
           OR (e.owner_kind = 'object' AND NOT EXISTS (
                   SELECT FROM graph_objects o
                   WHERE o.tenant_id = v_tenant AND o.branch_id = v_main AND o.canonical_id = e.owner_id
                     AND o.deleted_at IS NULL AND o.embed_text IS NOT NULL)));
    GET DIAGNOSTICS removed = ROW_COUNT;
    UPDATE embeddings e SET suppression = o.suppression
    FROM (
        SELECT 'note' AS kind, n.note_id AS id, n.suppression FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.project_id = v_project
        UNION ALL
        SELECT 'fact', f.fact_id, f.suppression FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project
        UNION ALL
        SELECT 'card', c.card_id, c.suppression FROM memory_cards c
        WHERE c.tenant_id = v_tenant AND c.project_id = v_project
        UNION ALL
        SELECT 'object', o.canonical_id, o.suppression FROM graph_objects o
        WHERE o.tenant_id = v_tenant AND o.branch_id = v_main
    ) o
    WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.owner_kind = o.kind AND e.owner_id = o.id
      AND e.suppression <> o.suppression;

    INSERT INTO embedding_queue (tenant_id, project_id, owner_kind, owner_id, model_id, queued_at, available_at)
    SELECT v_tenant, v_project, u.kind, u.id, m.model_id, v_now, v_now
    FROM (
        SELECT 'note' AS kind, n.note_id AS id FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.deleted_at IS NULL AND n.suppression = 0
        UNION ALL
        SELECT 'fact', f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.confidence > p_min AND f.suppression = 0
        UNION ALL
        SELECT 'card', c.card_id FROM memory_cards c
        WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.suppression = 0
        UNION ALL
        SELECT 'object', o.canonical_id FROM graph_objects o
        WHERE o.tenant_id = v_tenant AND o.branch_id = v_main AND o.deleted_at IS NULL AND o.suppression = 0
          AND o.embed_text IS NOT NULL
    ) u
    CROSS JOIN embedding_models m
    WHERE NOT EXISTS (
        SELECT FROM embeddings e
        WHERE e.tenant_id = v_tenant AND e.model_id = m.model_id AND e.view = 'self' AND e.owner_kind = u.kind
          AND e.owner_id = u.id)
    ORDER BY u.id, m.model_id
    ON CONFLICT (tenant_id, project_id, model_id, owner_kind, owner_id) DO NOTHING;
    GET DIAGNOSTICS queued = ROW_COUNT;

    DELETE FROM embedding_counts c
    WHERE c.tenant_id = v_tenant AND c.project_id = v_project
      AND NOT EXISTS (SELECT FROM embedding_models m WHERE m.model_id = c.model_id);
    UPDATE embedding_counts c
    SET vectors = coalesce(n.vectors, 0), notes = coalesce(n.notes, 0), facts = coalesce(n.facts, 0)
    FROM embedding_models m
    LEFT JOIN (
        SELECT e.model_id, count(*) AS vectors, count(*) FILTER (WHERE e.owner_kind = 'note') AS notes,
               count(*) FILTER (WHERE e.owner_kind = 'fact') AS facts
        FROM embeddings e
        WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.view = 'self' GROUP BY e.model_id
    ) n ON n.model_id = m.model_id
    WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.model_id = m.model_id AND c.view = 'self';
END
$$;
