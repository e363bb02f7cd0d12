-- Creates an entity, or finds the one of that name and adds the given kind and aliases; returns its id.
-- Security definer, since a hidden entity may have the name: then nothing is written, and `hidden` is the id to show to
-- callers who must not learn of it.
CREATE OR REPLACE FUNCTION put_entity(
    p_id uuid, p_canonical text, p_norm text, p_kind text, p_aliases json)
RETURNS TABLE (entity_id uuid, created boolean, hidden uuid, created_at timestamptz)
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
    v_now timestamptz := clock_timestamp();
    v_user text := owner_user();
    v_id uuid;
    v_created boolean;
    v_hidden uuid;
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RAISE EXCEPTION 'put_entity needs a scope with tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;
    INSERT INTO graph_entities (
        tenant_id, entity_id, project_id, canonical, canonical_norm, kind, created_at, updated_at, user_id)
    VALUES (v_tenant, p_id, v_project, p_canonical, p_norm, p_kind, v_now, v_now, v_user)
    ON CONFLICT (tenant_id, project_id, canonical_norm, user_id) DO NOTHING
    RETURNING entity_id INTO v_id;
    v_created := v_id IS NOT NULL;
    IF NOT v_created THEN
        SELECT coalesce(e.merged_into, e.entity_id) INTO v_id FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.canonical_norm = p_norm AND e.user_id = v_user;
        PERFORM FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.entity_id = v_id AND e.merged_into IS NULL FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the entity was merged meanwhile' USING ERRCODE = '40001';
        END IF;
        SELECT e.decoy_id INTO v_hidden FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.entity_id = v_id AND e.suppression > 0;
        IF FOUND THEN
            RETURN QUERY SELECT NULL::uuid, false, v_hidden, v_now;
            RETURN;
        END IF;
        UPDATE graph_entities e SET kind = p_kind, updated_at = v_now
        WHERE p_kind IS NOT NULL AND e.tenant_id = v_tenant AND e.entity_id = v_id AND e.kind IS DISTINCT FROM p_kind;
    END IF;
    INSERT INTO graph_entity_aliases (
        tenant_id, alias_id, project_id, entity_id, alias, alias_norm, suppression, created_at, user_id)
    SELECT v_tenant, a.new_id, v_project, v_id, a.alias, a.norm, e.suppression, v_now, v_user
    FROM json_to_recordset(p_aliases) AS a(new_id uuid, alias text, norm text)
    JOIN graph_entities e ON e.tenant_id = v_tenant AND e.entity_id = v_id
    WHERE a.norm <> e.canonical_norm
    ON CONFLICT (tenant_id, entity_id, alias_norm, user_id) DO NOTHING;
    RETURN QUERY SELECT v_id, v_created, NULL::uuid, v_now;
END
$$;
