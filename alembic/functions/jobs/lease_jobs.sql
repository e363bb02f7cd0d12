-- Leases due jobs of some kinds, round-robin over tenants starting after p_after, with an equal share for each tenant.
-- The caller keeps the position, so workers never wait for each other; many jobs of one tenant do not delay the others.
-- One call examines at most 500 tenants. When none of them has due work, one row without a job returns the position.
-- p_owner must be new for every call: it is the fencing token without which nobody can end the job.
-- A lease need not survive a crash, since the job is then leased again, so its commit does not wait for disk.
CREATE OR REPLACE FUNCTION lease_jobs(p_owner text, p_kinds text[], p_limit int, p_lease interval, p_after text)
RETURNS TABLE (
    tenant_id text, job_id uuid, project_id text, agent_id text, kind text, payload jsonb, attempts int,
    max_attempts int, waited interval, user_id text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_cursor text := coalesce(p_after, '');
    v_wrapped boolean := v_cursor = '';
    v_examined int := 0;
    v_tenant text;
    v_tenants text[] := '{}';
    v_left int := p_limit;
    v_share int;
    v_leased int;
    v_index int := 0;
BEGIN
    SET LOCAL synchronous_commit = off;
    WHILE cardinality(v_tenants) < p_limit LOOP
        IF v_examined = 500 THEN
            IF cardinality(v_tenants) = 0 THEN
                tenant_id := v_cursor;
                RETURN NEXT;
            END IF;
            EXIT;
        END IF;
        v_examined := v_examined + 1;
        SELECT j.tenant_id INTO v_tenant FROM public.jobs j
        WHERE j.status = 'pending' AND j.tenant_id > v_cursor ORDER BY j.tenant_id LIMIT 1;
        IF NOT FOUND THEN
            EXIT WHEN v_wrapped;
            v_wrapped := true;
            v_cursor := '';
            CONTINUE;
        END IF;
        EXIT WHEN v_wrapped AND coalesce(p_after, '') <> '' AND v_tenant > p_after;
        v_cursor := v_tenant;
        IF EXISTS (SELECT FROM public.jobs j WHERE j.tenant_id = v_tenant AND j.kind = ANY (p_kinds)
                   AND j.status = 'pending' AND j.available_at <= v_now) THEN
            v_tenants := v_tenants || v_tenant;
        END IF;
    END LOOP;

    FOREACH v_tenant IN ARRAY v_tenants LOOP
        EXIT WHEN v_left <= 0;
        v_share := ceil(v_left::numeric / (cardinality(v_tenants) - v_index));
        RETURN QUERY
        WITH pick AS (
            SELECT x.job_id FROM unnest(p_kinds) k CROSS JOIN LATERAL (
                SELECT j.job_id, j.priority, j.available_at FROM public.jobs j
                WHERE j.tenant_id = v_tenant AND j.kind = k AND j.status = 'pending' AND j.available_at <= v_now
                ORDER BY j.priority DESC, j.available_at, j.job_id
                LIMIT v_share
                FOR UPDATE SKIP LOCKED) x
            ORDER BY x.priority DESC, x.available_at, x.job_id LIMIT v_share)
        UPDATE public.jobs j
        SET status = 'leased', lease_owner = p_owner, lease_expires_at = v_now + p_lease,
            attempts = j.attempts + 1, started_at = v_now
        FROM pick WHERE j.tenant_id = v_tenant AND j.job_id = pick.job_id
        RETURNING j.tenant_id, j.job_id, j.project_id, j.agent_id, j.kind, j.payload, j.attempts, j.max_attempts,
                  v_now - j.available_at, j.user_id;
        GET DIAGNOSTICS v_leased = ROW_COUNT;
        v_left := v_left - v_leased;
        v_index := v_index + 1;
    END LOOP;
END
$$;
