-- Schedules one sealing job for each tenant whose audit log has unsealed events and no open job, across tenants. Steps
-- from tenant to tenant by the index, however many events wait. The finished job of a tenant is made due again, since
-- sealing is needed every few seconds.
CREATE OR REPLACE FUNCTION schedule_seals()
RETURNS TABLE (tenant_id text, job_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
    v_tenant text := '';
BEGIN
    LOOP
        SELECT a.tenant_id INTO v_tenant FROM audit_log a
        WHERE a.sequence IS NULL AND a.tenant_id > v_tenant ORDER BY a.tenant_id LIMIT 1;
        EXIT WHEN NOT FOUND;
        RETURN QUERY
        INSERT INTO jobs AS j (tenant_id, job_id, kind, payload, dedupe_key, priority, created_by, available_at,
                               created_at)
        VALUES (v_tenant, md5('seal ' || v_tenant)::uuid, 'seal', '{}', 'seal', 10, 'schedule', v_now, v_now)
        ON CONFLICT ON CONSTRAINT jobs_pkey DO UPDATE
        SET status = 'pending', attempts = 0, available_at = v_now, created_at = v_now, started_at = NULL,
            finished_at = NULL, last_error = NULL
        WHERE j.status NOT IN ('pending', 'leased')
        RETURNING j.tenant_id, j.job_id;
    END LOOP;
END
$$;
