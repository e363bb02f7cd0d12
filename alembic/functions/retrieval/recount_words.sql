-- Forgets how often words stand in a project, and has a job count them anew: after something of it was hidden, shown again
-- or erased, so that no score tells of what is out of sight. Until then the index is asked, which leaves it out. Called
-- last: whoever counts or tells of new units at this moment is waited for here, and must not wait for us. Answers how
-- many words were forgotten.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION recount_words(p_tenant text, p_project text)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_count bigint;
BEGIN
    -- Before their words: who counts them at this moment holds this row.
    INSERT INTO lexical_statistics AS s (tenant_id, project_id, kind, documents, total_length, added, counted_at)
    SELECT p_tenant, p_project, k.kind, 0, 0, 0, '-infinity' FROM unnest(ARRAY['fact', 'note', 'object']) k(kind)
    ON CONFLICT (tenant_id, project_id, kind) DO UPDATE SET counted_at = excluded.counted_at;
    DELETE FROM lexical_frequencies l WHERE l.tenant_id = p_tenant AND l.project_id = p_project;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    -- Of the whole tenant, as the job of an erasure is: agents must not learn by it that something was hidden. One that
    -- runs already may have counted before.
    INSERT INTO jobs (tenant_id, job_id, kind, payload, created_by, available_at, created_at)
    SELECT p_tenant, make_id(), 'recount', jsonb_build_object('project_id', p_project), 'schedule', v_now, v_now
    WHERE NOT EXISTS (
        SELECT FROM jobs j
        WHERE j.tenant_id = p_tenant AND j.kind = 'recount' AND j.status = 'pending'
          AND j.payload ->> 'project_id' = p_project);
    RETURN v_count;
END
$$;
