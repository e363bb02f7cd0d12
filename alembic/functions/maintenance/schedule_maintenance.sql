-- Schedule: enqueues a maintenance job for each tenant that has expired rows and no open maintenance job.
CREATE OR REPLACE FUNCTION schedule_maintenance(p_windows_before bigint)
RETURNS TABLE (tenant_id text, job_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    INSERT INTO public.jobs AS j (tenant_id, job_id, kind, payload, dedupe_key, created_by, available_at, created_at)
    SELECT t.tenant_id, gen_random_uuid(), 'maintenance', '{}', 'maintenance', 'schedule', v_now, v_now
    FROM public.tenants t
    WHERE EXISTS (SELECT FROM public.idempotency_keys i WHERE i.tenant_id = t.tenant_id AND i.expires_at <= v_now)
       OR EXISTS (SELECT FROM public.rate_windows w WHERE w.tenant_id = t.tenant_id
                  AND coalesce(w.slots[cardinality(w.slots)], 0) < p_windows_before)
       OR EXISTS (SELECT FROM public.recall_traces r
                  JOIN public.projects p ON p.tenant_id = t.tenant_id AND p.project_id = r.project_id
                  WHERE r.tenant_id = t.tenant_id AND r.created_at < v_now
                        - make_interval(days => coalesce((p.settings ->> 'trace_days')::int, 30)))
    ON CONFLICT DO NOTHING
    RETURNING j.tenant_id, j.job_id;
END
$$;
