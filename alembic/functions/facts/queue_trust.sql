-- Queues a refresh of the trust in the sources of retracted facts, whose history has changed: one job for each source
-- and minute, at the end of that minute. A job names a fact and not its source, which may be content. Runs with the
-- rights of its caller.
CREATE OR REPLACE FUNCTION queue_trust(p_tenant text, p_project text, p_facts uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_due timestamptz := date_trunc('minute', v_now) + interval '1 minute';
BEGIN
    INSERT INTO jobs (tenant_id, job_id, project_id, kind, payload, dedupe_key, created_by, available_at, created_at)
    SELECT p_tenant, make_id(), p_project, 'trust', jsonb_build_object('fact_id', x.fact_id),
           encode(sha256(convert_to(x.source, 'UTF8')), 'hex') || ' ' || extract(epoch FROM v_due)::bigint, 'service',
           v_due, v_now
    FROM (
        SELECT DISTINCT ON (f.source) f.source, f.fact_id FROM unnest(p_facts) u(fact_id)
        CROSS JOIN LATERAL (
            SELECT f.source, f.fact_id FROM graph_facts f
            WHERE f.tenant_id = p_tenant AND f.fact_id = u.fact_id AND f.source IS NOT NULL OFFSET 0) f
        ORDER BY f.source, f.fact_id
    ) x
    ON CONFLICT DO NOTHING;
END
$$;
