-- Updates the status of the note or document that a job is about, after the job ended or was put back into the queue.
-- p_status is the status the job is about to get, when it has not got it yet.
-- Runs as the owner, since the note may be private to another agent; restricted to the tenant of the scope.
CREATE OR REPLACE FUNCTION update_job_subject(p_tenant text, p_job uuid, p_status text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_job jobs;
    v_now timestamptz := clock_timestamp();
BEGIN
    SELECT j.* INTO v_job FROM jobs j WHERE j.tenant_id = p_tenant AND j.job_id = p_job;
    -- reap_leases calls this without a scope; every other caller is restricted to its own tenant.
    IF NOT FOUND OR p_tenant <> coalesce(nullif(current_setting('app.tenant_id', true), ''), p_tenant) THEN
        RETURN;
    END IF;
    v_job.status := coalesce(p_status, v_job.status);
    IF v_job.kind = 'extract' THEN
        UPDATE memory_notes n
        SET extraction_status = CASE WHEN v_job.status IN ('failed', 'dead') THEN 'failed'
                                     WHEN v_job.status = 'cancelled' THEN 'none'
                                     WHEN v_job.status = 'pending' THEN 'pending' ELSE n.extraction_status END
        WHERE n.tenant_id = p_tenant AND n.note_id = (v_job.payload ->> 'note_id')::uuid;
    ELSIF v_job.kind = 'document_ingest' THEN
        UPDATE documents d
        SET status = CASE WHEN v_job.status IN ('failed', 'dead', 'cancelled') THEN 'failed'
                          WHEN v_job.status = 'pending' THEN 'queued' ELSE d.status END,
            error = CASE WHEN v_job.status IN ('failed', 'dead') THEN coalesce(d.error, v_job.last_error)
                         WHEN v_job.status = 'cancelled' THEN 'cancelled: its job was cancelled'
                         WHEN v_job.status = 'pending' THEN NULL ELSE d.error END,
            updated_at = v_now
        WHERE d.tenant_id = p_tenant AND d.document_id = (v_job.payload ->> 'document_id')::uuid
          AND d.status <> 'done';
    END IF;
END
$$;
