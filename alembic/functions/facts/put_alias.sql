-- Gives an entity the caller can see one more name; returns the alias and whether it is new.
CREATE OR REPLACE FUNCTION put_alias(p_entity uuid, p_id uuid, p_alias text, p_norm text)
RETURNS TABLE (entity_id uuid, alias_id uuid, alias text, created_at timestamptz, created boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_user text := current_setting('app.user_id', true);
    v_entity uuid;
    v_now timestamptz;
BEGIN
    SELECT coalesce(e.merged_into, e.entity_id) INTO v_entity FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.entity_id = p_entity AND e.suppression = 0
      AND (e.user_id IN ('', v_user) OR v_user = '*');
    IF v_entity IS NULL THEN
        RETURN;
    END IF;
    -- Locked against a merge, which moves the aliases it sees; after a faster merge the entity is read again.
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id = v_entity AND e.merged_into IS NULL AND e.suppression = 0
    FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the entity was merged meanwhile' USING ERRCODE = '40001';
    END IF;
    v_now := clock_timestamp();
    IF EXISTS (SELECT FROM graph_entities e
               WHERE e.tenant_id = v_tenant AND e.entity_id = v_entity AND e.canonical_norm = p_norm) THEN
        RETURN QUERY SELECT v_entity, NULL::uuid, p_alias, v_now, false;
        RETURN;
    END IF;
    -- What a user calls somebody is theirs; without a user it belongs to whom the entity belongs.
    INSERT INTO graph_entity_aliases (
        tenant_id, alias_id, project_id, entity_id, alias, alias_norm, created_at, user_id)
    SELECT v_tenant, p_id, v_project, v_entity, p_alias, p_norm, v_now,
           CASE v_user WHEN '*' THEN e.user_id ELSE v_user END
    FROM graph_entities e WHERE e.tenant_id = v_tenant AND e.entity_id = v_entity
    ON CONFLICT (tenant_id, entity_id, alias_norm, user_id) DO NOTHING;
    RETURN QUERY
    SELECT a.entity_id, a.alias_id, a.alias, a.created_at, a.alias_id = p_id
    FROM graph_entity_aliases a
    WHERE a.tenant_id = v_tenant AND a.entity_id = v_entity AND a.alias_norm = p_norm
      AND (v_user = '*' OR a.user_id = v_user) LIMIT 1;
END
$$;
