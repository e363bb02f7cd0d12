-- Enqueues the graph_link job of a note, leased to p_link's owner. When one is open already, enqueues it to run after
-- that one (waits = true) and replaces the payload of a job that waits so. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION enqueue_link_job(
    p_source memory_notes, p_link jsonb, p_now timestamptz, OUT link_job uuid, OUT waits boolean)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_key text := p_source.note_id::text;
    v_next_key text := p_source.note_id::text || ':next';
    v_payload jsonb := p_link -> 'payload';
    v_attempts int := (p_link ->> 'attempts')::int;
BEGIN
    waits := false;
    link_job := make_id();
    INSERT INTO jobs (
        tenant_id, job_id, project_id, agent_id, kind, payload, dedupe_key, max_attempts, created_by, available_at,
        created_at, status, attempts, lease_owner, lease_expires_at, started_at, user_id)
    VALUES (p_source.tenant_id, link_job, p_source.project_id, p_source.agent_id, 'graph_link', v_payload, v_key,
            v_attempts, 'pipeline', p_now, p_now, 'leased', 1, p_link ->> 'owner',
            p_now + make_interval(secs => (p_link ->> 'lease_seconds')::float8), p_now, p_source.user_id)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        RETURN;
    END IF;
    waits := true;
    UPDATE jobs j SET payload = v_payload
    WHERE j.tenant_id = p_source.tenant_id AND j.project_id = p_source.project_id AND j.kind = 'graph_link'
      AND j.dedupe_key = v_next_key AND j.status = 'pending'
    RETURNING j.job_id INTO link_job;
    IF NOT FOUND THEN
        link_job := make_id();
        -- Without a key while another one with it is leased, which is in use until that ends.
        INSERT INTO jobs (
            tenant_id, job_id, project_id, agent_id, kind, payload, dedupe_key, max_attempts, created_by,
            available_at, created_at, user_id)
        VALUES (p_source.tenant_id, link_job, p_source.project_id, p_source.agent_id, 'graph_link', v_payload,
                CASE WHEN NOT EXISTS (
                    SELECT FROM jobs j
                    WHERE j.tenant_id = p_source.tenant_id AND j.project_id = p_source.project_id
                      AND j.kind = 'graph_link' AND j.dedupe_key = v_next_key AND j.status = 'leased')
                THEN v_next_key END, v_attempts, 'pipeline', p_now, p_now, p_source.user_id);
    END IF;
END
$$;
