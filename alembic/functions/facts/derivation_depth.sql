-- Returns over how many derivations a fact was concluded: 0 for one that was simply stated; counts up to p_most. Only
-- facts that the caller may read count. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION derivation_depth(p_tenant text, p_fact uuid, p_most int)
RETURNS int
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN (
        WITH RECURSIVE chain(fact_id, depth) AS (
            SELECT p_fact, 0
            UNION
            SELECT f.fact_id, c.depth + 1 FROM chain c
            JOIN fact_derivations d ON d.tenant_id = p_tenant AND d.fact_id = c.fact_id AND d.kind = 'derived'
            LEFT JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_hash = d.source_hash
            WHERE c.depth < p_most
        )
        SELECT max(c.depth) FROM chain c);
END
$$;
