-- Deletes the term frequencies of a project and queues a job that counts them again, after something was hidden,
-- restored or erased, so that no score reveals it; until then terms are counted in the index. Returns how many were
-- deleted. To be called last: it waits for transactions that count or add units, which must not wait for this one. Runs
-- with the rights of its caller.
CREATE OR REPLACE FUNCTION recount_terms(p_tenant text, p_project text)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_count bigint;
BEGIN
    -- First: a transaction that counts terms locks this row.
    INSERT INTO lexical_statistics AS s (tenant_id, project_id, kind, documents, total_length, added, counted_at)
    SELECT p_tenant, p_project, k.kind, 0, 0, 0, '-infinity' FROM unnest(ARRAY['fact', 'note', 'object']) k(kind)
    ON CONFLICT (tenant_id, project_id, kind) DO UPDATE SET counted_at = excluded.counted_at;
    DELETE FROM lexical_frequencies l WHERE l.tenant_id = p_tenant AND l.project_id = p_project;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    -- A job of the whole tenant, so that agents cannot see that something was hidden. A running job may have counted
    -- before this change.
    INSERT INTO jobs (tenant_id, job_id, kind, payload, created_by, available_at, created_at)
    SELECT p_tenant, make_id(), 'recount', jsonb_build_object('project_id', p_project), 'schedule', v_now, v_now
    WHERE NOT EXISTS (
        SELECT FROM jobs j
        WHERE j.tenant_id = p_tenant AND j.kind = 'recount' AND j.status = 'pending'
          AND j.payload ->> 'project_id' = p_project);
    RETURN v_count;
END
$$;
