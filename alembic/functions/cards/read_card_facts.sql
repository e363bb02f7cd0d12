-- Returns the names of an entity, whether its project scores sources, and its current facts with these scopes and
-- owners (NULL: all), with the time they were read at; nothing when the entity is unknown or hidden. Runs as the owner,
-- because a card is built without an agent and private facts have a card too, which the policy protects like the facts.
-- Waits for writers about the entity, so that their facts are included or have a later time. Locks in this order: the
-- project (against tombstones, erasures and changes of trust), the entity, its predicates.
CREATE OR REPLACE FUNCTION read_card_facts(p_entity uuid, p_places json DEFAULT NULL)
RETURNS TABLE (read_at timestamptz, canonical text, kind text, aliases text[], judged boolean, facts text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_judged boolean;
    v_entity graph_entities;
    v_now timestamptz;
BEGIN
    SELECT coalesce(p.settings ->> 'trust_mode', 'off') <> 'off' INTO v_judged FROM projects p
    WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR SHARE;
    SELECT e.* INTO v_entity FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.entity_id = p_entity AND e.merged_into IS NULL
      AND e.suppression = 0
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM FROM graph_predicates p
    WHERE p.tenant_id = v_tenant AND p.predicate_id IN (
        SELECT f.predicate_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.subject_entity_id = p_entity)
    ORDER BY p.predicate_id FOR KEY SHARE;
    v_now := clock_timestamp();
    RETURN QUERY
    SELECT v_now, v_entity.canonical, v_entity.kind,
           ARRAY(SELECT a.alias FROM graph_entity_aliases a
                 WHERE a.tenant_id = v_tenant AND a.entity_id = p_entity AND a.suppression = 0
                   AND a.user_id = v_entity.user_id
                 ORDER BY a.alias_norm),
           coalesce(v_judged, false), coalesce(json_agg(json_build_object(
               'fact_id', f.fact_id, 'scope', f.scope, 'owner_key', f.owner_key, 'relation', p.canonical,
               'value', CASE WHEN f.object_entity_id IS NOT NULL THEN o.canonical
                             WHEN f.value_type = 'null' THEN 'null' ELSE left(f.object_value, 1000) END,
               'confidence', f.confidence, 'source_trust', f.source_trust, 'source', f.source, 'hlc', f.hlc,
               'valid_from', to_char(f.valid_from AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
               'since', to_char(f.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
               'against', ARRAY(
                   SELECT k.fact_a FROM fact_conflicts k
                   WHERE k.tenant_id = v_tenant AND k.fact_b = f.fact_id AND k.status = 'open'
                   ORDER BY k.fact_a))), '[]')::text
    FROM graph_facts f
    JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = f.predicate_id
    LEFT JOIN graph_entities o ON o.tenant_id = v_tenant AND o.entity_id = f.object_entity_id
    WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.subject_entity_id = p_entity
      AND f.retracted_at IS NULL AND f.suppression = 0 AND f.valid_from <= v_now AND f.valid_until > v_now
      AND (p_places IS NULL OR EXISTS (
          SELECT FROM json_to_recordset(p_places) AS w(scope text, owner_key text)
          WHERE w.scope = f.scope AND w.owner_key = f.owner_key));
END
$$;
