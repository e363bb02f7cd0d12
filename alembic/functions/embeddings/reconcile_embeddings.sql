-- Makes the vectors of a project and their queue match its notes, facts, cards and objects on main with a text: deletes
-- what is gone (see prune_embeddings), updates what is hidden, queues what has no vector (see queue_missing_units), and
-- counts the vectors again. Returns how many rows changed. Runs as the owner, since private units are embedded too.
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
    -- Locked from here on: a transaction that stores or removes vectors adds to the counts after this one.
    INSERT INTO embedding_counts AS c (
        tenant_id, project_id, model_id, view, vectors, notes, facts, counted_at)
    SELECT v_tenant, v_project, m.model_id, 'self', 0, 0, 0, v_now FROM embedding_models m ORDER BY m.model_id
    ON CONFLICT (tenant_id, project_id, model_id, view) DO UPDATE SET counted_at = excluded.counted_at;

    SELECT p.unqueued, p.removed INTO unqueued, removed FROM prune_embeddings(v_tenant, v_project, v_main, p_min) p;
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

    queued := queue_missing_units(v_tenant, v_project, v_main, p_min);

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
