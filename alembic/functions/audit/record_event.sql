-- Writes one event to the audit log in the transaction of the action: ids and counts, never content. Tenant, project
-- and agent are those of the scope. It gets its place in the chain when it is sealed, so that writers never wait for
-- each other.
CREATE OR REPLACE FUNCTION record_event(p_type text, p_key text, p_details jsonb)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
BEGIN
    IF v_tenant IS NULL THEN
        RAISE EXCEPTION 'record_event needs a scope with a tenant' USING ERRCODE = 'insufficient_privilege';
    END IF;
    INSERT INTO audit_log (tenant_id, event_id, project_id, event_type, key_id, agent_id, details, created_at)
    VALUES (v_tenant, make_id(), nullif(current_setting('app.project_id', true), ''), p_type, p_key,
            coalesce(current_setting('app.agent_id', true), ''), p_details, clock_timestamp());
END
$$;
