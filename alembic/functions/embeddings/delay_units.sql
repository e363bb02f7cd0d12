-- Postpones units that could not be embedded, with the reason. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION delay_units(p_model smallint, p_units json)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
BEGIN
    UPDATE embedding_queue q
    SET attempts = q.attempts + u.failed::int, last_error = coalesce(u.error, q.last_error), available_at = u.until
    FROM json_to_recordset(p_units) AS u(
        kind text, id uuid, queued_at timestamptz, until timestamptz, error text, failed boolean)
    WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = p_model
      AND q.owner_kind = u.kind AND q.owner_id = u.id AND q.queued_at = u.queued_at;
END
$$;
