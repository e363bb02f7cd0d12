-- Stores cards that were built from what read_card_facts returned at p_read_at, and deletes those of the same scopes
-- and owners (NULL: all) without facts. A card built from later facts stays. The owner of a card follows from its
-- facts. Changed cards are queued to be embedded. Returns `changed` when something was erased or restored since, `gone`
-- when the entity is, otherwise NULL.
CREATE OR REPLACE FUNCTION store_cards(p_entity uuid, p_read_at timestamptz, p_places json, p_cards json)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_old jsonb;
    v_gone uuid[];
    v_changed uuid[];
BEGIN
    -- Never during a tombstone or an erasure: a card must not bring back what they hide.
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR SHARE;
    IF EXISTS (SELECT FROM tombstones t
               WHERE t.tenant_id = v_tenant AND t.project_id = v_project
                 AND (t.created_at >= p_read_at OR t.erased_at >= p_read_at))
       OR EXISTS (SELECT FROM tombstone_revocations r
                  WHERE r.tenant_id = v_tenant AND r.project_id = v_project AND r.revoked_at >= p_read_at) THEN
        RETURN 'changed';
    END IF;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.entity_id = p_entity AND e.merged_into IS NULL
      AND e.suppression = 0
    FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN 'gone';
    END IF;
    PERFORM FROM memory_cards c
    WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.entity_id = p_entity
    ORDER BY c.scope, c.owner_key FOR UPDATE;
    SELECT coalesce(jsonb_object_agg(c.scope || ' ' || c.owner_key, c.content), '{}'),
           array_agg(c.card_id) FILTER (WHERE c.built_at < p_read_at AND n.scope IS NULL AND (
               p_places IS NULL OR EXISTS (
                   SELECT FROM json_to_recordset(p_places) AS w(scope text, owner_key text)
                   WHERE w.scope = c.scope AND w.owner_key = c.owner_key)))
    INTO v_old, v_gone
    FROM memory_cards c
    LEFT JOIN json_to_recordset(p_cards) AS n(scope text, owner_key text)
        ON n.scope = c.scope AND n.owner_key = c.owner_key
    WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.entity_id = p_entity;
    PERFORM drop_cards(v_tenant, v_gone);

    WITH stored AS (
        INSERT INTO memory_cards AS c (
            tenant_id, card_id, project_id, entity_id, scope, garden_id, agent_id, owner_key, content, facts, omitted,
            built_at, user_id)
        SELECT v_tenant, n.card_id, v_project, p_entity, n.scope, f.garden_id,
               CASE n.scope WHEN 'agent_private' THEN f.agent_id ELSE '' END, n.owner_key, n.content, n.facts,
               n.omitted, p_read_at, f.user_id
        FROM json_to_recordset(p_cards)
            AS n(card_id uuid, scope text, owner_key text, content text, facts int, omitted int)
        CROSS JOIN LATERAL (
            SELECT f.garden_id, f.agent_id, f.user_id FROM graph_facts f
            WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.subject_entity_id = p_entity
              AND f.scope = n.scope AND f.owner_key = n.owner_key LIMIT 1
        ) f
        ORDER BY n.scope, n.owner_key
        ON CONFLICT (tenant_id, project_id, entity_id, scope, owner_key) DO UPDATE
        SET content = excluded.content, facts = excluded.facts, omitted = excluded.omitted,
            built_at = excluded.built_at
        WHERE c.built_at < excluded.built_at
        RETURNING c.card_id, c.content, c.scope, c.owner_key
    )
    SELECT array_agg(s.card_id) INTO v_changed FROM stored s
    WHERE s.content IS DISTINCT FROM v_old ->> (s.scope || ' ' || s.owner_key);
    PERFORM queue_units(v_tenant, v_project, 'card', v_changed);
    RETURN NULL;
END
$$;
