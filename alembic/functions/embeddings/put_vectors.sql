-- Stores the vectors of locked units that are not hidden; returns the kinds of those that had none. Part of
-- store_vectors.
CREATE OR REPLACE FUNCTION put_vectors(
    p_tenant text, p_project text, p_main uuid, p_model smallint, p_units json, p_vectors text[], p_held uuid[],
    p_now timestamptz)
RETURNS text[]
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    v_known uuid[];
    v_new text[];
BEGIN
    v_known := ARRAY(
        SELECT e.owner_id FROM json_to_recordset(p_units) AS u(kind text, id uuid)
        JOIN embeddings e ON e.tenant_id = p_tenant AND e.model_id = p_model AND e.view = 'self'
            AND e.owner_kind = u.kind AND e.owner_id = u.id);
    WITH stored AS (
        INSERT INTO embeddings AS e (
            tenant_id, project_id, owner_kind, owner_id, view, model_id, agent_id, scope, garden_id, suppression,
            text_hash, embedded_at, vector, user_id)
        SELECT p_tenant, p_project, u.kind, u.id, 'self', p_model, o.agent_id, o.scope, o.garden_id, o.suppression,
               decode(u.hash, 'hex'),
               -- The vector of a unit queued again since belongs to its text of before.
               CASE WHEN EXISTS (
                   SELECT FROM embedding_queue q
                   WHERE q.tenant_id = p_tenant AND q.project_id = p_project AND q.model_id = p_model
                     AND q.owner_kind = u.kind AND q.owner_id = u.id AND q.queued_at <> u.queued_at)
               THEN u.queued_at ELSE p_now END,
               p_vectors[u.place]::vector, o.user_id
        FROM json_to_recordset(p_units) AS u(kind text, id uuid, hash text, place int, queued_at timestamptz)
        CROSS JOIN LATERAL (
            SELECT n.agent_id, n.scope, n.garden_id, n.suppression, n.user_id FROM memory_notes n
            WHERE u.kind = 'note' AND n.tenant_id = p_tenant AND n.note_id = u.id
            UNION ALL
            SELECT f.agent_id, f.scope, f.garden_id, f.suppression, f.user_id FROM graph_facts f
            WHERE u.kind = 'fact' AND f.tenant_id = p_tenant AND f.fact_id = u.id
            UNION ALL
            SELECT c.agent_id, c.scope, c.garden_id, c.suppression, c.user_id FROM memory_cards c
            WHERE u.kind = 'card' AND c.tenant_id = p_tenant AND c.card_id = u.id
            UNION ALL
            SELECT '', 'project_shared', NULL, o.suppression, '' FROM graph_objects o
            WHERE u.kind = 'object' AND o.tenant_id = p_tenant AND o.branch_id = p_main AND o.canonical_id = u.id
        ) o
        WHERE u.place IS NOT NULL AND u.id = ANY (p_held) AND o.suppression = 0
        ORDER BY u.kind, u.id
        ON CONFLICT (tenant_id, model_id, view, owner_kind, owner_id) DO UPDATE
        SET text_hash = excluded.text_hash, vector = excluded.vector, embedded_at = excluded.embedded_at,
            agent_id = excluded.agent_id, scope = excluded.scope, garden_id = excluded.garden_id,
            suppression = excluded.suppression, user_id = excluded.user_id
        RETURNING e.owner_id <> ALL (v_known) AS is_new, e.owner_kind
    )
    SELECT array_agg(t.owner_kind) INTO v_new FROM stored t WHERE t.is_new;
    RETURN coalesce(v_new, '{}');
END
$$;
