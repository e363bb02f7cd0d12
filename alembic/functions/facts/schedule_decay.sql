-- Schedules one decay job for each project that has policies, was not swept since p_before and has no open job, across
-- tenants.
CREATE OR REPLACE FUNCTION schedule_decay(p_before timestamptz)
RETURNS TABLE (tenant_id text, job_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    INSERT INTO jobs AS j (tenant_id, job_id, project_id, kind, payload, dedupe_key, created_by, available_at,
                           created_at)
    SELECT d.tenant_id, make_id(), d.project_id, 'decay', '{}', 'decay', 'schedule', v_now, v_now
    FROM (SELECT DISTINCT d.tenant_id, d.project_id FROM decay_policies d
          WHERE d.mode <> 'dry_run' AND (d.swept_at IS NULL OR d.swept_at < p_before)) d
    ON CONFLICT DO NOTHING
    RETURNING j.tenant_id, j.job_id;
END
$$;
