-- Returns the holder of a key of any tenant, with project, user, scopes and gardens, as one row. The user is the key's,
-- else the requested one, else '*' for all of them; '' where the project demands that an agent names one.
-- outcome is ok, unknown, revoked, expired, project_unknown, project_forbidden or user_forbidden. Without the right secret it is always
-- unknown, so that a guess reveals nothing.
CREATE OR REPLACE FUNCTION authenticate(p_key_id uuid, p_secret_hash bytea, p_project text, p_user text)
RETURNS TABLE (
    outcome text, tenant_id text, project_id text, key_project text, kind text, agent_id text,
    scopes text[], gardens uuid[], rate_limits jsonb, user_id text,
    key_user text)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    k public.api_keys%ROWTYPE;
    v_project text;
    v_gardens uuid[];
BEGIN
    SELECT * INTO k FROM public.api_keys a WHERE a.key_id = p_key_id;
    IF NOT FOUND THEN
        IF EXISTS (SELECT FROM public.platform_keys p
                   WHERE p.key_id = p_key_id AND p.secret_hash = p_secret_hash AND p.revoked_at IS NULL) THEN
            RETURN QUERY SELECT 'ok', NULL::text, NULL::text, NULL::text, 'platform', NULL::text,
                                '{}'::text[], '{}'::uuid[], '{}'::jsonb, '*', NULL::text;
        ELSE
            RETURN QUERY SELECT 'unknown', NULL::text, NULL::text, NULL::text, NULL::text, NULL::text,
                                NULL::text[], NULL::uuid[], NULL::jsonb, NULL::text, NULL::text;
        END IF;
        RETURN;
    END IF;

    IF k.secret_hash <> p_secret_hash AND NOT coalesce(
            k.previous_hash = p_secret_hash AND k.previous_until > clock_timestamp(), false) THEN
        outcome := 'unknown';
    ELSIF k.revoked_at IS NOT NULL THEN
        outcome := 'revoked';
    ELSIF k.expires_at <= clock_timestamp() THEN
        outcome := 'expired';
    ELSIF k.project_id IS NOT NULL AND p_project <> '' AND p_project <> k.project_id THEN
        outcome := 'project_forbidden';
    ELSIF k.project_id IS NULL AND p_project <> '' AND NOT EXISTS (
            SELECT FROM public.projects p WHERE p.tenant_id = k.tenant_id AND p.project_id = p_project) THEN
        outcome := 'project_unknown';
    ELSIF k.user_id IS NOT NULL AND p_user <> '' AND p_user <> k.user_id THEN
        outcome := 'user_forbidden';
    ELSE
        outcome := 'ok';
        v_project := coalesce(k.project_id, nullif(p_project, ''));
        IF v_project IS NULL THEN
            NULL;
        ELSIF k.kind = 'admin' THEN
            SELECT array_agg(g.garden_id) INTO v_gardens FROM public.gardens g
            WHERE g.tenant_id = k.tenant_id AND g.project_id = v_project;
        ELSE
            SELECT array_agg(m.garden_id) INTO v_gardens FROM public.garden_members m
            WHERE m.tenant_id = k.tenant_id AND m.project_id = v_project AND m.agent_id = k.agent_id;
        END IF;
        tenant_id := k.tenant_id;
        project_id := v_project;
        key_project := k.project_id;
        kind := k.kind;
        agent_id := k.agent_id;
        scopes := k.scopes;
        gardens := coalesce(v_gardens, '{}');
        rate_limits := k.rate_limits;
        key_user := k.user_id;
        user_id := coalesce(k.user_id, nullif(p_user, ''), '*');
        IF user_id = '*' AND k.kind = 'agent' AND EXISTS (
                SELECT FROM public.projects p
                WHERE p.tenant_id = k.tenant_id AND p.project_id = v_project AND p.settings @> '{"require_user": true}') THEN
            user_id := '';
        END IF;
    END IF;
    RETURN NEXT;
END
$$;
