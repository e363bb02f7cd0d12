-- Makes all embedding jobs of a model due that wait for its provider, across tenants.
CREATE OR REPLACE FUNCTION resume_embeddings(p_model smallint)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_count bigint;
BEGIN
    WITH pick AS (
        SELECT j.tenant_id, j.job_id FROM jobs j
        WHERE j.status = 'pending' AND j.kind = 'embed' AND j.available_at > v_now
          AND j.dedupe_key = 'embed ' || p_model
        FOR UPDATE SKIP LOCKED
    )
    UPDATE jobs j SET available_at = v_now FROM pick
    WHERE j.tenant_id = pick.tenant_id AND j.job_id = pick.job_id;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;
