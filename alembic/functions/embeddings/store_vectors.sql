-- Keeps the vectors of units and takes them off the queue, unless they were queued again since they were read. A unit
-- without a place in p_vectors is as it was; one that is gone loses what is stored of it, and one that was hidden
-- meanwhile gets no vector: it is queued again when it comes back. One that somebody is changing at this moment is
-- skipped and told, and so is everything when the model made at p_made is no more.
-- Also answers the subjects of facts that came or went and have a card.
-- Of the owner, since private units are embedded too; whose a vector is follows from its unit alone.
CREATE OR REPLACE FUNCTION store_vectors(
    p_model smallint, p_made timestamptz, p_units json, p_vectors text[], OUT skipped uuid[], OUT subjects uuid[])
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
    v_known uuid[];
    v_new text[];
    v_added bigint;
    v_removed bigint;
    v_notes bigint;
    v_facts bigint;
BEGIN
    v_ids := ARRAY(SELECT u.id FROM json_to_recordset(p_units) AS u(id uuid, place int) WHERE u.place IS NOT NULL);
    PERFORM FROM embedding_models m WHERE m.model_id = p_model AND m.created_at = p_made FOR KEY SHARE;
    IF NOT FOUND THEN
        skipped := v_ids;
        RETURN;
    END IF;
    -- What is told of words and cards is told once, however many models there are.
    SELECT m.model_id = p_model INTO v_leads FROM embedding_models m ORDER BY m.active DESC, m.model_id LIMIT 1;

    -- First of all the place that reconciliation holds too: one of the two works at a time, and neither waits for the
    -- other with something in hand.
    INSERT INTO embedding_counts AS c (
        tenant_id, project_id, model_id, view, vectors, notes, facts, counted_at)
    VALUES (v_tenant, v_project, p_model, 'self', 0, 0, 0, v_now)
    ON CONFLICT (tenant_id, project_id, model_id, view) DO UPDATE SET counted_at = excluded.counted_at;

    -- Whoever hides or erases a unit waits until its vector is there to be hidden or erased too. Nobody is waited for
    -- here, so that nobody can wait for us in a circle.
    v_held := ARRAY(
        SELECT c.card_id FROM memory_cards c
        WHERE c.tenant_id = v_tenant AND c.card_id = ANY (v_ids) AND c.project_id = v_project
        FOR SHARE SKIP LOCKED);
    v_held := v_held || ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_ids) AND f.project_id = v_project
        FOR SHARE SKIP LOCKED);
    v_held := v_held || ARRAY(
        SELECT n.note_id FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_ids) AND n.project_id = v_project
        FOR SHARE SKIP LOCKED);
    v_held := v_held || ARRAY(
        SELECT o.canonical_id FROM graph_objects o
        WHERE o.tenant_id = v_tenant AND o.branch_id = v_main AND o.canonical_id = ANY (v_ids)
        FOR SHARE SKIP LOCKED);
    skipped := ARRAY(
        SELECT x.id FROM (
            SELECT c.card_id AS id FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.card_id = ANY (v_ids)
            UNION ALL
            SELECT f.fact_id FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_ids)
            UNION ALL
            SELECT n.note_id FROM memory_notes n WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_ids)
            UNION ALL
            SELECT o.canonical_id FROM graph_objects o
            WHERE o.tenant_id = v_tenant AND o.branch_id = v_main AND o.canonical_id = ANY (v_ids)
        ) x WHERE x.id <> ALL (v_held));

    v_known := ARRAY(
        SELECT e.owner_id FROM json_to_recordset(p_units) AS u(kind text, id uuid)
        JOIN embeddings e ON e.tenant_id = v_tenant AND e.model_id = p_model AND e.view = 'self'
            AND e.owner_kind = u.kind AND e.owner_id = u.id);
    WITH stored AS (
        INSERT INTO embeddings AS e (
            tenant_id, project_id, owner_kind, owner_id, view, model_id, agent_id, scope, garden_id, suppression,
            text_hash, embedded_at, vector)
        SELECT v_tenant, v_project, u.kind, u.id, 'self', p_model, o.agent_id, o.scope, o.garden_id, o.suppression,
               decode(u.hash, 'hex'),
               -- Of one that was changed meanwhile it is the vector of before.
               CASE WHEN EXISTS (
                   SELECT FROM embedding_queue q
                   WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = p_model
                     AND q.owner_kind = u.kind AND q.owner_id = u.id AND q.queued_at <> u.queued_at)
               THEN u.queued_at ELSE v_now END,
               p_vectors[u.place]::vector
        FROM json_to_recordset(p_units) AS u(kind text, id uuid, hash text, place int, queued_at timestamptz)
        CROSS JOIN LATERAL (
            SELECT n.agent_id, n.scope, n.garden_id, n.suppression FROM memory_notes n
            WHERE u.kind = 'note' AND n.tenant_id = v_tenant AND n.note_id = u.id
            UNION ALL
            SELECT f.agent_id, f.scope, f.garden_id, f.suppression FROM graph_facts f
            WHERE u.kind = 'fact' AND f.tenant_id = v_tenant AND f.fact_id = u.id
            UNION ALL
            SELECT c.agent_id, c.scope, c.garden_id, c.suppression FROM memory_cards c
            WHERE u.kind = 'card' AND c.tenant_id = v_tenant AND c.card_id = u.id
            UNION ALL
            SELECT '', 'project_shared', NULL, o.suppression FROM graph_objects o
            WHERE u.kind = 'object' AND o.tenant_id = v_tenant AND o.branch_id = v_main AND o.canonical_id = u.id
        ) o
        WHERE u.place IS NOT NULL AND u.id = ANY (v_held) AND o.suppression = 0
        ORDER BY u.kind, u.id
        ON CONFLICT (tenant_id, model_id, view, owner_kind, owner_id) DO UPDATE
        SET text_hash = excluded.text_hash, vector = excluded.vector, embedded_at = excluded.embedded_at,
            agent_id = excluded.agent_id, scope = excluded.scope, garden_id = excluded.garden_id,
            suppression = excluded.suppression
        RETURNING e.owner_id <> ALL (v_known) AS is_new, e.owner_kind
    )
    SELECT count(*), count(*) FILTER (WHERE t.owner_kind = 'note'), count(*) FILTER (WHERE t.owner_kind = 'fact'),
           array_agg(t.owner_kind)
    INTO v_added, v_notes, v_facts, v_new FROM stored t WHERE t.is_new;

    -- What was changed and says the same to a model has the right vector to this day.
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
    SELECT count(*), v_notes - count(*) FILTER (WHERE g.owner_kind = 'note'),
           v_facts - count(*) FILTER (WHERE g.owner_kind = 'fact')
    INTO v_removed, v_notes, v_facts FROM gone g;
    DELETE FROM embedding_queue q
    USING json_to_recordset(p_units) AS u(kind text, id uuid, queued_at timestamptz)
    WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = p_model
      AND q.owner_kind = u.kind AND q.owner_id = u.id AND q.queued_at = u.queued_at AND u.id <> ALL (skipped);
    UPDATE embedding_counts c
    SET vectors = greatest(0, c.vectors + v_added - v_removed), notes = greatest(0, c.notes + v_notes),
        facts = greatest(0, c.facts + v_facts)
    WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.model_id = p_model AND c.view = 'self'
      AND (v_added > 0 OR v_removed > 0);
    subjects := ARRAY(
        SELECT DISTINCT f.subject_entity_id
        FROM json_to_recordset(p_units) AS u(kind text, id uuid, place int, gone boolean)
        JOIN graph_facts f ON f.tenant_id = v_tenant AND f.fact_id = u.id AND f.project_id = v_project
        WHERE v_leads AND u.kind = 'fact' AND (u.gone OR u.place IS NOT NULL) AND u.id <> ALL (skipped)
          AND EXISTS (SELECT FROM memory_cards c
                      WHERE c.tenant_id = v_tenant AND c.project_id = v_project
                        AND c.entity_id = f.subject_entity_id));
    -- Last of all: who hides units at this moment holds their places in the queue, and comes here after that.
    INSERT INTO lexical_statistics AS s (tenant_id, project_id, kind, documents, total_length, added, counted_at)
    SELECT v_tenant, v_project, t.kind, 0, 0, count(*), '-infinity' FROM unnest(v_new) t(kind)
    WHERE v_leads AND t.kind IN ('note', 'fact', 'object') GROUP BY t.kind ORDER BY t.kind
    ON CONFLICT (tenant_id, project_id, kind) DO UPDATE SET added = s.added + excluded.added;
END
$$;
