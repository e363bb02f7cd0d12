-- Returns the drafts that would be derived from themselves: those that reach their own hash from the hashes they cite,
-- through existing facts and other drafts. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_cycles(p_tenant text, p_project text, p_indexes int[], p_hashes bytea[], p_derived json)
RETURNS int[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
BEGIN
    RETURN ARRAY(
        WITH RECURSIVE own AS (
            SELECT u.idx, u.hash FROM unnest(p_indexes, p_hashes) u(idx, hash)
        ), cited AS (
            SELECT d.idx, decode(d.hash, 'hex') AS source FROM json_to_recordset(p_derived) AS d(idx int, hash text)
        ), walk(idx, hash) AS (
            SELECT c.idx, c.source FROM cited c JOIN own o ON o.idx = c.idx
            UNION
            SELECT w.idx, n.source FROM walk w
            CROSS JOIN LATERAL (
                SELECT d.source_hash AS source FROM graph_facts f
                JOIN fact_derivations d ON d.tenant_id = p_tenant AND d.fact_id = f.fact_id AND d.kind = 'derived'
                WHERE f.tenant_id = p_tenant AND f.fact_hash = w.hash AND f.project_id = p_project
                UNION ALL
                SELECT c.source FROM own o JOIN cited c ON c.idx = o.idx WHERE o.hash = w.hash
            ) n
        )
        SELECT DISTINCT w.idx FROM walk w JOIN own o ON o.idx = w.idx AND o.hash = w.hash);
END
$$;
