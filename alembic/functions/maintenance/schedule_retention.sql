-- Schedule: enqueues a retention job for each tenant that has none open and none since p_before, or whose last sweep
-- reached its limit. Tenants younger than p_before have nothing to purge.
CREATE OR REPLACE FUNCTION schedule_retention(p_before timestamptz)
RETURNS TABLE (tenant_id text, job_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    INSERT INTO jobs AS j (tenant_id, job_id, kind, payload, dedupe_key, created_by, available_at, created_at)
    SELECT t.tenant_id, i.job_id, 'retention', '{}', 'retention', 'schedule', v_now, v_now
    FROM tenants t
    CROSS JOIN LATERAL (SELECT md5('retention ' || t.tenant_id)::uuid AS job_id) i
    WHERE t.created_at < p_before AND NOT EXISTS (
        SELECT FROM jobs d
        WHERE d.tenant_id = t.tenant_id AND d.job_id = i.job_id
          AND (d.status IN ('pending', 'leased')
               OR (d.finished_at >= p_before
                   AND (d.status <> 'completed' OR d.result ->> 'full' IS DISTINCT FROM 'true'))))
    ON CONFLICT ON CONSTRAINT jobs_pkey DO UPDATE
    SET status = 'pending', attempts = 0, available_at = excluded.available_at, created_at = excluded.created_at,
        started_at = NULL, finished_at = NULL, last_error = NULL, result = NULL
    WHERE j.status NOT IN ('pending', 'leased')
    RETURNING j.tenant_id, j.job_id;
END
$$;
