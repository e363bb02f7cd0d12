-- Queues units to be embedded with every model; makes those queued already due again. Units of no project are not
-- embedded. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION queue_units(p_tenant text, p_project text, p_kind text, p_ids uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    INSERT INTO embedding_queue AS q (
        tenant_id, project_id, owner_kind, owner_id, model_id, queued_at, available_at)
    SELECT p_tenant, p_project, p_kind, u.id, m.model_id, v_now, v_now
    FROM unnest(p_ids) u(id) CROSS JOIN embedding_models m WHERE p_project IS NOT NULL
    ORDER BY u.id, m.model_id
    ON CONFLICT (tenant_id, project_id, model_id, owner_kind, owner_id) DO UPDATE
    SET queued_at = excluded.queued_at, available_at = excluded.available_at, attempts = 0, last_error = NULL;
END
$$;
