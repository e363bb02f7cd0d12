-- Lists the sources that facts of the project name, or the one that p_fact names: those after p_after in their order,
-- each once, at most p_limit. Private facts count, so that their trust is refreshed too.
CREATE OR REPLACE FUNCTION list_fact_sources(p_fact uuid, p_after text, p_limit int)
RETURNS TABLE (source text)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
BEGIN
    IF p_fact IS NOT NULL THEN
        RETURN QUERY
        SELECT f.source FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.fact_id = p_fact AND f.source > p_after;
        RETURN;
    END IF;
    RETURN QUERY
    WITH RECURSIVE named(source) AS (
        (SELECT f.source FROM graph_facts f
         WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.source > p_after
         ORDER BY f.source LIMIT 1)
        UNION ALL
        SELECT n.source FROM named l
        CROSS JOIN LATERAL (
            SELECT f.source FROM graph_facts f
            WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.source > l.source
            ORDER BY f.source LIMIT 1) n
    )
    SELECT n.source FROM named n LIMIT p_limit;
END
$$;
