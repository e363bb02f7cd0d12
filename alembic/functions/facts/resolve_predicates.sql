-- Returns the predicates that names or ids refer to, by precedence: the project's, the tenant's, the installation's; in
-- each a canonical name precedes an alias. `copy`: the tenant has no copy of the installation's row yet.
CREATE OR REPLACE FUNCTION resolve_predicates(p_tenant text, p_project text, p_names json)
RETURNS TABLE (ref int, predicate_id uuid, canonical text, cardinality text, status text, copy boolean)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_own text := p_tenant || ':' || p_project;
    v_shared text := p_tenant || ':*';
BEGIN
    RETURN QUERY
    SELECT n.ref, f.predicate_id, f.canonical, f.cardinality, f.status, coalesce(f.copy, false)
    FROM json_to_recordset(p_names) AS n(ref int, predicate_id uuid, norm text)
    LEFT JOIN LATERAL (
        SELECT * FROM (
            SELECT p.predicate_id, p.canonical, p.cardinality, p.status, false AS copy,
                   CASE p.scope_key WHEN v_own THEN 1 WHEN v_shared THEN 3 ELSE 5 END AS rank
            FROM graph_predicates p
            WHERE p.tenant_id = p_tenant AND p.scope_key IN (v_own, v_shared, '__global__')
              AND p.canonical_norm = n.norm
            UNION ALL
            SELECT p.predicate_id, p.canonical, p.cardinality, p.status, false,
                   CASE a.scope_key WHEN v_own THEN 2 ELSE 4 END
            FROM graph_predicate_aliases a
            JOIN graph_predicates p ON p.tenant_id = p_tenant AND p.predicate_id = a.predicate_id
            WHERE a.tenant_id = p_tenant AND a.scope_key IN (v_own, v_shared) AND a.alias_norm = n.norm
            UNION ALL
            SELECT g.predicate_id, g.canonical, g.cardinality, g.status,
                   NOT EXISTS (SELECT FROM graph_predicates p
                               WHERE p.tenant_id = p_tenant AND p.predicate_id = g.predicate_id), 6
            FROM global_predicates g
            WHERE g.canonical_norm = n.norm
            UNION ALL
            SELECT g.predicate_id, g.canonical, g.cardinality, g.status,
                   NOT EXISTS (SELECT FROM graph_predicates p
                               WHERE p.tenant_id = p_tenant AND p.predicate_id = g.predicate_id), 7
            FROM global_predicate_aliases a
            JOIN global_predicates g ON g.predicate_id = a.predicate_id
            WHERE a.alias_norm = n.norm
            UNION ALL
            SELECT p.predicate_id, p.canonical, p.cardinality, p.status, false, 0
            FROM graph_predicates p
            WHERE n.norm IS NULL AND p.tenant_id = p_tenant AND p.predicate_id = n.predicate_id
              AND (p.project_id IS NULL OR p.project_id = p_project)
            UNION ALL
            SELECT g.predicate_id, g.canonical, g.cardinality, g.status, true, 1
            FROM global_predicates g
            WHERE n.norm IS NULL AND g.predicate_id = n.predicate_id
              AND NOT EXISTS (SELECT FROM graph_predicates p
                              WHERE p.tenant_id = p_tenant AND p.predicate_id = g.predicate_id)
        ) found
        ORDER BY rank LIMIT 1
    ) f ON true;
END
$$;
