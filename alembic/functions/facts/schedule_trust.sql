-- Schedules a refresh of trust for each project whose facts name sources and that had none since p_before and has none
-- open, across tenants: histories grow and age without an event of their own.
CREATE OR REPLACE FUNCTION schedule_trust(p_before timestamptz)
RETURNS TABLE (tenant_id text, job_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    INSERT INTO jobs AS j (tenant_id, job_id, project_id, kind, payload, dedupe_key, created_by, available_at,
                           created_at)
    SELECT p.tenant_id, i.job_id, p.project_id, 'trust', '{"repeated": true}', 'trust daily', 'schedule', v_now, v_now
    FROM projects p
    CROSS JOIN LATERAL (SELECT md5('trust ' || p.tenant_id || '/' || p.project_id)::uuid AS job_id) i
    WHERE p.created_at < p_before
      AND NOT EXISTS (
            SELECT FROM jobs d
            WHERE d.tenant_id = p.tenant_id AND d.job_id = i.job_id
              AND (d.status IN ('pending', 'leased') OR d.finished_at >= p_before))
      AND EXISTS (SELECT FROM graph_facts f
                  WHERE f.tenant_id = p.tenant_id AND f.project_id = p.project_id AND f.source IS NOT NULL)
    ON CONFLICT ON CONSTRAINT jobs_pkey DO UPDATE
    SET status = 'pending', attempts = 0, available_at = excluded.available_at, created_at = excluded.created_at,
        started_at = NULL, finished_at = NULL, last_error = NULL
    WHERE j.status NOT IN ('pending', 'leased')
    RETURNING j.tenant_id, j.job_id;
END
$$;
