-- Stores the vectors of units and removes the units from the queue, unless they were queued again since they were read.
-- A unit without a place in p_vectors keeps its vector; one that is gone loses it; one hidden since gets none and is
-- queued again when it is restored. Returns the units skipped because another transaction is changing them, or all when
-- the model created at p_created is gone, and the subjects of changed facts that have a card. Runs as the owner, since
-- private units are embedded too; the owner of a vector follows from its unit.
CREATE OR REPLACE FUNCTION store_vectors(
    p_model smallint, p_created timestamptz, p_units json, p_vectors text[], OUT skipped uuid[], OUT subjects uuid[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off
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
    v_leads boolean;
    v_ids uuid[];
    v_held uuid[];
    v_added text[];
    v_removed text[];
BEGIN
    v_ids := ARRAY(SELECT u.id FROM json_to_recordset(p_units) AS u(id uuid, place int) WHERE u.place IS NOT NULL);
    PERFORM FROM embedding_models m WHERE m.model_id = p_model AND m.created_at = p_created FOR KEY SHARE;
    IF NOT FOUND THEN
        skipped := v_ids;
        RETURN;
    END IF;
    -- With several models, only one of them reports changes of terms and cards.
    SELECT m.model_id = p_model INTO v_leads FROM embedding_models m ORDER BY m.active DESC, m.model_id LIMIT 1;

    -- Reconciliation locks this row first too, so that the two run one after the other and cannot deadlock.
    INSERT INTO embedding_counts AS c (
        tenant_id, project_id, model_id, view, vectors, notes, facts, counted_at)
    VALUES (v_tenant, v_project, p_model, 'self', 0, 0, 0, v_now)
    ON CONFLICT (tenant_id, project_id, model_id, view) DO UPDATE SET counted_at = excluded.counted_at;

    SELECT l.held, l.skipped INTO v_held, skipped FROM lock_units(v_tenant, v_project, v_main, v_ids) l;
    v_added := put_vectors(v_tenant, v_project, v_main, p_model, p_units, p_vectors, v_held, v_now);

    -- A changed note with the same text for a model keeps its vector, which is up to date.
    UPDATE embeddings e SET embedded_at = v_now
    FROM json_to_recordset(p_units) AS u(kind text, id uuid, place int, queued_at timestamptz, gone boolean)
    JOIN embedding_queue q ON q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = p_model
        AND q.owner_kind = u.kind AND q.owner_id = u.id AND q.queued_at = u.queued_at
    JOIN memory_notes n ON n.tenant_id = v_tenant AND n.note_id = u.id
    WHERE u.kind = 'note' AND u.place IS NULL AND u.gone IS NOT TRUE AND n.updated_at > e.embedded_at
      AND e.tenant_id = v_tenant AND e.model_id = p_model AND e.view = 'self'
      AND e.owner_kind = u.kind AND e.owner_id = u.id;

    WITH gone AS (
        DELETE FROM embeddings e USING json_to_recordset(p_units) AS u(kind text, id uuid, gone boolean)
        WHERE u.gone AND e.tenant_id = v_tenant AND e.model_id = p_model AND e.view = 'self'
          AND e.owner_kind = u.kind AND e.owner_id = u.id
        RETURNING e.owner_kind
    )
    SELECT coalesce(array_agg(g.owner_kind), '{}') INTO v_removed FROM gone g;
    DELETE FROM embedding_queue q
    USING json_to_recordset(p_units) AS u(kind text, id uuid, queued_at timestamptz)
    WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = p_model
      AND q.owner_kind = u.kind AND q.owner_id = u.id AND q.queued_at = u.queued_at AND u.id <> ALL (skipped);
    PERFORM count_vectors(v_tenant, v_project, p_model, v_added, v_removed);
    subjects := ARRAY(
        SELECT DISTINCT f.subject_entity_id
        FROM json_to_recordset(p_units) AS u(kind text, id uuid, place int, gone boolean)
        JOIN graph_facts f ON f.tenant_id = v_tenant AND f.fact_id = u.id AND f.project_id = v_project
        WHERE v_leads AND u.kind = 'fact' AND (u.gone OR u.place IS NOT NULL) AND u.id <> ALL (skipped)
          AND EXISTS (SELECT FROM memory_cards c
                      WHERE c.tenant_id = v_tenant AND c.project_id = v_project
                        AND c.entity_id = f.subject_entity_id));
    -- Last: a transaction that hides units holds their rows in the queue, and updates the statistics after that.
    INSERT INTO lexical_statistics AS s (tenant_id, project_id, kind, documents, total_length, added, counted_at)
    SELECT v_tenant, v_project, t.kind, 0, 0, count(*), '-infinity' FROM unnest(v_added) t(kind)
    WHERE v_leads AND t.kind IN ('note', 'fact', 'object') GROUP BY t.kind ORDER BY t.kind
    ON CONFLICT (tenant_id, project_id, kind) DO UPDATE SET added = s.added + excluded.added;
END
$$;
