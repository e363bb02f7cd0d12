-- Schedule: enqueues a maintenance cycle for each project of any tenant that enables it, is not frozen, has none open and
-- had none within its interval. Returns the jobs.
CREATE OR REPLACE FUNCTION schedule_cycles()
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
    SELECT p.tenant_id, i.job_id, p.project_id, 'maintenance_cycle', '{}', 'maintenance_cycle', 'schedule', v_now, v_now
    FROM projects p
    CROSS JOIN LATERAL (
        SELECT md5('maintenance_cycle ' || p.tenant_id || '/' || p.project_id)::uuid AS job_id,
               make_interval(secs => coalesce(
                   (p.settings #>> '{pipeline,maintenance_interval_ms}')::float8, 1800000) / 1000) AS pause) i
    WHERE (p.settings #>> '{pipeline,autonomous_enabled}')::boolean
      AND coalesce((p.settings #>> '{pipeline,autonomous_frozen}')::boolean, false) = false
      AND NOT EXISTS (
        SELECT FROM jobs d
        WHERE d.tenant_id = p.tenant_id AND d.job_id = i.job_id
          AND (d.status IN ('pending', 'leased') OR d.finished_at > v_now - i.pause))
    ON CONFLICT ON CONSTRAINT jobs_pkey DO UPDATE
    SET status = 'pending', attempts = 0, available_at = excluded.available_at, created_at = excluded.created_at,
        started_at = NULL, finished_at = NULL, last_error = NULL, result = NULL
    WHERE j.status NOT IN ('pending', 'leased')
    RETURNING j.tenant_id, j.job_id;
END
$$;
