-- Counts the jobs of a project that wait, are leased, or ended within 24 hours. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION diagnose_jobs(
    p_tenant text, p_project text, p_now timestamptz, OUT depth bigint, OUT oldest_seconds double precision,
    OUT ended bigint, OUT dead bigint, OUT failed bigint, OUT long_leases bigint, OUT stale_leases bigint,
    OUT lost_links bigint)
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    SELECT count(*), greatest(0, coalesce(extract(epoch FROM p_now - min(j.available_at)), 0))
    INTO depth, oldest_seconds FROM jobs j
    WHERE j.tenant_id = p_tenant AND j.project_id = p_project AND j.status = 'pending';
    SELECT count(*) FILTER (WHERE coalesce(j.started_at, j.created_at) < p_now - interval '10 minutes'),
           count(*) FILTER (WHERE j.lease_expires_at < p_now)
    INTO long_leases, stale_leases FROM jobs j
    WHERE j.tenant_id = p_tenant AND j.project_id = p_project AND j.status = 'leased';
    SELECT count(*) FILTER (WHERE j.status = 'dead'), count(*) FILTER (WHERE j.status = 'failed'),
           count(*) FILTER (WHERE j.kind = 'graph_link')
    INTO dead, failed, lost_links FROM jobs j
    WHERE j.tenant_id = p_tenant AND j.status IN ('dead', 'failed') AND j.finished_at >= p_now - interval '24 hours'
      AND j.project_id = p_project;
    -- The first condition on status is that of the index; cancelled jobs are not counted.
    SELECT dead + failed + count(*) INTO ended FROM jobs j
    WHERE j.tenant_id = p_tenant AND j.status IN ('completed', 'cancelled') AND j.status = 'completed'
      AND j.finished_at >= p_now - interval '24 hours' AND j.project_id = p_project;
END
$$;
