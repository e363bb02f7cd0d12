-- Bind an entity to the object that represents it, named by its canonical id or that of a version; NULL unbinds it. The
-- object has to be live, visible and of the project (else object_not_found) or of every project, which needs p_shared
-- (wrong_key_kind), because hiding or erasing the entity then affects all projects. For an entity that a tombstone
-- hides, administrators get entity_tombstoned; agents are not told, and the object is hidden as well. Of the owner,
-- since nobody else may write entities.
CREATE OR REPLACE FUNCTION bind_entity(
    p_entity uuid, p_object uuid, p_admin boolean, p_shared boolean, p_key text)
RETURNS TABLE (refused text, entity_id uuid, object_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz;
    v_entity graph_entities;
    v_object uuid;
    v_hidden boolean;
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RAISE EXCEPTION 'bind_entity needs tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;
    -- Shared with other writers, but not with issuing a tombstone.
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR SHARE;
    SELECT o.* INTO v_entity FROM graph_entities e
    JOIN graph_entities o ON o.tenant_id = v_tenant AND o.entity_id = coalesce(e.merged_into, e.entity_id)
    WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.entity_id = p_entity AND o.suppression = 0
      -- All users share objects.
      AND o.user_id = '' AND owner_user() = '';
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'entity_not_found', NULL::uuid, NULL::uuid;
        RETURN;
    END IF;
    SELECT e.* INTO v_entity FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id = v_entity.entity_id AND e.merged_into IS NULL FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the entity was merged meanwhile' USING ERRCODE = '40001';
    END IF;
    IF p_object IS NOT NULL THEN
        -- The canonical id is that of the first version.
        SELECT v.canonical_id INTO v_object FROM graph_object_versions v
        JOIN graph_objects o ON o.tenant_id = v_tenant AND o.branch_id = v.branch_id AND o.canonical_id = v.canonical_id
        WHERE v.tenant_id = v_tenant AND v.version_id = p_object AND v.suppression = 0
          AND is_visible_object(v.project_id, o.suppression, v_project) AND o.deleted_at IS NULL;
        IF NOT FOUND THEN
            RETURN QUERY SELECT 'object_not_found', NULL::uuid, NULL::uuid;
            RETURN;
        END IF;
    END IF;
    IF NOT p_shared AND EXISTS (
        SELECT FROM graph_object_versions v
        WHERE v.tenant_id = v_tenant AND v.canonical_id IN (v_object, v_entity.object_canonical_id)
          AND v.project_id IS NULL) THEN
        RETURN QUERY SELECT 'wrong_key_kind', NULL::uuid, NULL::uuid;
        RETURN;
    END IF;
    v_hidden := hidden_level(v_entity.erased_scopes, v_entity.held_scopes, 'project_shared') > 0;
    IF v_hidden AND p_admin THEN
        RETURN QUERY SELECT 'entity_tombstoned', NULL::uuid, NULL::uuid;
        RETURN;
    END IF;
    IF v_object IS DISTINCT FROM v_entity.object_canonical_id THEN
        v_now := clock_timestamp();
        IF v_hidden AND v_entity.object_canonical_id IS NOT NULL THEN
            -- The object stays hidden until the tombstone is revoked.
            INSERT INTO object_entity_mentions (tenant_id, project_id, canonical_id, entity_id, created_at)
            VALUES (v_tenant, v_project, v_entity.object_canonical_id, v_entity.entity_id, v_now)
            ON CONFLICT DO NOTHING;
        END IF;
        UPDATE graph_entities e SET object_canonical_id = v_object, updated_at = v_now
        WHERE e.tenant_id = v_tenant AND e.entity_id = v_entity.entity_id;
        PERFORM hide_or_restore_objects(v_tenant, array_remove(ARRAY[v_entity.object_canonical_id, v_object], NULL));
        PERFORM record_event('object_write', p_key, jsonb_build_object(
            'action', CASE WHEN v_object IS NULL THEN 'entity_unbind' ELSE 'entity_bind' END,
            'entity_id', v_entity.entity_id, 'object_id', coalesce(v_object, v_entity.object_canonical_id)));
    END IF;
    RETURN QUERY SELECT NULL::text, v_entity.entity_id, v_object;
END
$$;
