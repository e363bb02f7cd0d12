-- Records that a user is to be erased and returns the erasure, or an open one of the same user; `refused` when a legal
-- hold keeps some of what is theirs.
CREATE OR REPLACE FUNCTION request_user_erasure(p_erasure uuid, p_user text, p_key text)
RETURNS TABLE (refused text, erasure_id uuid, created boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_hash bytea := user_hash(v_tenant, v_project, p_user);
    v_open uuid;
BEGIN
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR NO KEY UPDATE;
    IF is_user_held(v_tenant, v_project, p_user) THEN
        RETURN QUERY SELECT 'legal_hold', NULL::uuid, false;
        RETURN;
    END IF;
    SELECT e.erasure_id INTO v_open FROM user_erasures e
    WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.user_hash = v_hash AND e.erased_at IS NULL;
    IF v_open IS NULL THEN
        INSERT INTO user_erasures (tenant_id, erasure_id, project_id, user_hash, key_id, created_at)
        VALUES (v_tenant, p_erasure, v_project, v_hash, p_key, clock_timestamp());
        PERFORM record_event('admin_action', p_key, jsonb_build_object(
            'action', 'user_erase', 'erasure_id', p_erasure));
    END IF;
    RETURN QUERY SELECT NULL::text, coalesce(v_open, p_erasure), v_open IS NULL;
END
$$;
