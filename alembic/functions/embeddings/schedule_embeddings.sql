-- Creates an embedding job for each project and model with due units and no open job, across tenants. Steps from
-- project to project by the index, however long the queue is.
CREATE OR REPLACE FUNCTION schedule_embeddings()
RETURNS TABLE (tenant_id text, job_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
    v_models smallint[] := ARRAY(SELECT m.model_id FROM embedding_models m ORDER BY m.active DESC, m.model_id);
    v_tenant text := '';
    v_project text := '';
    v_model smallint;
    v_job uuid;
BEGIN
    LOOP
        SELECT q.tenant_id, q.project_id INTO v_tenant, v_project FROM embedding_queue q
        WHERE (q.tenant_id, q.project_id) > (v_tenant, v_project)
        ORDER BY q.tenant_id, q.project_id LIMIT 1;
        EXIT WHEN NOT FOUND;
        FOREACH v_model IN ARRAY v_models LOOP
            v_job := md5('embed ' || v_tenant || '/' || v_project || '/' || v_model)::uuid;
            CONTINUE WHEN EXISTS (
                SELECT FROM jobs j
                WHERE j.tenant_id = v_tenant AND j.job_id = v_job AND j.status IN ('pending', 'leased'));
            CONTINUE WHEN NOT EXISTS (
                SELECT FROM embedding_queue q
                WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = v_model
                  AND q.available_at <= v_now);
            RETURN QUERY
            INSERT INTO jobs AS j (tenant_id, job_id, project_id, kind, payload, dedupe_key, created_by, available_at,
                                   created_at)
            VALUES (v_tenant, v_job, v_project, 'embed', jsonb_build_object('model', v_model), 'embed ' || v_model,
                    'schedule', v_now, v_now)
            ON CONFLICT ON CONSTRAINT jobs_pkey DO UPDATE
            SET status = 'pending', payload = excluded.payload, attempts = 0, available_at = excluded.available_at,
                created_at = excluded.created_at, started_at = NULL, finished_at = NULL, last_error = NULL
            WHERE j.status NOT IN ('pending', 'leased')
            RETURNING j.tenant_id, j.job_id;
        END LOOP;
    END LOOP;
END
$$;
