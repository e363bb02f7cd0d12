-- Returns up to p_limit dead jobs of a project that can be requeued: extractions and documents first, then the newest.
-- Excludes jobs that died again after a repair, whose target is gone, or whose key has an open job.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_requeuable_jobs(p_tenant text, p_project text, p_limit int)
RETURNS SETOF uuid
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
    RETURN QUERY
    SELECT d.job_id FROM (
        SELECT j.job_id, j.kind, j.payload, j.finished_at,
               row_number() OVER (PARTITION BY j.kind, coalesce(j.dedupe_key, j.job_id::text)
                                  ORDER BY j.finished_at DESC, j.job_id DESC) AS place
        FROM jobs j
        WHERE j.tenant_id = p_tenant AND j.project_id = p_project AND j.status = 'dead'
          AND j.kind <> 'maintenance_cycle' AND NOT coalesce(j.result ? 'requeued_at', false)
          AND NOT EXISTS (
              SELECT FROM jobs o
              WHERE o.tenant_id = p_tenant AND o.project_id = p_project AND o.kind = j.kind
                AND o.dedupe_key = j.dedupe_key AND o.status IN ('pending', 'leased'))
    ) d
    WHERE d.place = 1 AND job_subject_exists(p_tenant, d.payload)
    ORDER BY d.kind IN ('extract', 'document_ingest') DESC, d.finished_at DESC, d.job_id DESC LIMIT p_limit;
END
$$;
