-- Returns for each model, over all tenants, the number of vectors, of queued units and of failed ones, and the age of
-- the oldest other one. Names no tenant.
CREATE OR REPLACE FUNCTION embedding_metrics()
RETURNS TABLE (
    model_id smallint, model text, active boolean, vectors bigint, pending bigint, failed bigint,
    oldest_seconds double precision)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    SELECT m.model_id, m.provider || '/' || m.model || CASE WHEN m.version > 1 THEN ' v' || m.version ELSE '' END,
           m.active, coalesce(c.vectors, 0)::bigint, coalesce(q.pending, 0), coalesce(q.failed, 0),
           greatest(0, coalesce(extract(epoch FROM v_now - q.oldest), 0))::float8
    FROM embedding_models m
    LEFT JOIN (
        SELECT c.model_id, sum(c.vectors) AS vectors FROM embedding_counts c WHERE c.view = 'self' GROUP BY c.model_id
    ) c ON c.model_id = m.model_id
    LEFT JOIN (
        SELECT q.model_id, count(*) AS pending, count(*) FILTER (WHERE q.attempts > 0) AS failed,
               min(q.queued_at) FILTER (WHERE q.attempts = 0) AS oldest
        FROM embedding_queue q GROUP BY q.model_id
    ) q ON q.model_id = m.model_id
    ORDER BY m.model_id;
END
$$;
