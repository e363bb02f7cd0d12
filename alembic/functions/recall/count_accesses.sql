-- Adds to the access counts of facts; hidden facts are left as they are.
CREATE OR REPLACE FUNCTION count_accesses(p_facts uuid[], p_counts int[], p_at timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
BEGIN
    PERFORM FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (p_facts) ORDER BY f.fact_id FOR NO KEY UPDATE;
    UPDATE graph_facts f SET access_count = f.access_count + c.counted, last_accessed_at = p_at
    FROM unnest(p_facts, p_counts) c(fact_id, counted)
    WHERE f.tenant_id = v_tenant AND f.fact_id = c.fact_id AND f.suppression = 0;
END
$$;
