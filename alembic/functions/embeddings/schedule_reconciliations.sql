-- Creates a reconciliation job for each project with units that had none since p_before and has none open, across
-- tenants.
CREATE OR REPLACE FUNCTION schedule_reconciliations(p_before timestamptz)
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
    SELECT p.tenant_id, i.job_id, p.project_id, 'embed_reconcile', '{}', 'embed_reconcile', 'schedule', v_now, v_now
    FROM projects p
    CROSS JOIN LATERAL (
        SELECT md5('embed_reconcile ' || p.tenant_id || '/' || p.project_id)::uuid AS job_id) i
    WHERE NOT EXISTS (
            SELECT FROM jobs d
            WHERE d.tenant_id = p.tenant_id AND d.job_id = i.job_id
              AND (d.status IN ('pending', 'leased') OR d.finished_at >= p_before))
      AND (EXISTS (SELECT FROM memory_notes n WHERE n.tenant_id = p.tenant_id AND n.project_id = p.project_id)
           OR EXISTS (SELECT FROM graph_facts f WHERE f.tenant_id = p.tenant_id AND f.project_id = p.project_id)
           OR EXISTS (SELECT FROM branches b
                      JOIN graph_objects o ON o.tenant_id = p.tenant_id AND o.branch_id = b.branch_id
                      WHERE b.tenant_id = p.tenant_id AND b.project_id = p.project_id)
           OR EXISTS (SELECT FROM redaction_counts r
                      WHERE r.tenant_id = p.tenant_id AND r.project_id = p.project_id))
    ON CONFLICT ON CONSTRAINT jobs_pkey DO UPDATE
    SET status = 'pending', attempts = 0, available_at = excluded.available_at, created_at = excluded.created_at,
        started_at = NULL, finished_at = NULL, last_error = NULL
    WHERE j.status NOT IN ('pending', 'leased')
    RETURNING j.tenant_id, j.job_id;
END
$$;
