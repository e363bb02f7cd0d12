-- Returns the entities that names of one user ('': of all users) or ids refer to: a canonical name precedes an alias, a merged entity is the one it
-- was merged into. An id of a hidden entity has the state hidden.
-- OFFSET 0 keeps each lookup by key: a plan made while the tables were small would scan them whole from then on.
-- Runs with the rights of its caller: readers find what they may see, definer functions everything.
CREATE OR REPLACE FUNCTION resolve_owned(p_tenant text, p_project text, p_names json, p_user text)
RETURNS TABLE (ref int, entity_id uuid, state text, candidates uuid[])
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_sort = off
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT n.ref, x.found,
           CASE WHEN n.norm IS NULL AND i.suppression > 0 THEN 'hidden'
                WHEN x.found IS NOT NULL THEN 'found'
                WHEN n.norm IS NULL THEN 'unknown'
                WHEN cardinality(a.ids) > 1 THEN 'ambiguous'
                ELSE 'absent' END,
           CASE WHEN x.found IS NULL AND cardinality(a.ids) > 1 THEN a.ids END
    FROM json_to_recordset(p_names) AS n(ref int, entity_id uuid, norm text)
    LEFT JOIN LATERAL (
        SELECT coalesce(e.merged_into, e.entity_id) AS id, e.suppression
        FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.canonical_norm = n.norm
          AND e.user_id = p_user
        OFFSET 0
    ) c ON true
    LEFT JOIN LATERAL (
        SELECT coalesce(x.merged_into, x.entity_id) AS id, x.suppression
        FROM (SELECT e.merged_into, e.entity_id, e.project_id, e.suppression, e.user_id FROM graph_entities e
              WHERE n.norm IS NULL AND e.tenant_id = p_tenant AND e.entity_id = n.entity_id OFFSET 0) x
        WHERE x.project_id = p_project AND x.user_id IN ('', p_user)
    ) i ON true
    LEFT JOIN LATERAL (
        -- Hidden entities must not make a name ambiguous for callers who cannot see them.
        SELECT array_agg(DISTINCT s.entity_id) FILTER (WHERE s.suppression = 0) AS ids,
               (array_agg(DISTINCT s.entity_id) FILTER (WHERE s.suppression > 0))[1] AS hidden
        FROM (
            SELECT a.entity_id, a.suppression FROM graph_entity_aliases a
            WHERE (c.id IS NULL OR c.suppression > 0) AND a.tenant_id = p_tenant AND a.project_id = p_project
              AND a.alias_norm BETWEEN n.norm AND n.norm AND a.user_id = p_user
            ORDER BY a.alias_norm OFFSET 0
        ) s
    ) a ON true
    CROSS JOIN LATERAL (
        -- A visible entity precedes a hidden one, so that reads and writes resolve a name alike.
        SELECT CASE WHEN c.suppression = 0 THEN c.id WHEN n.norm IS NULL THEN i.id
                    WHEN cardinality(a.ids) = 1 THEN a.ids[1]
                    WHEN cardinality(a.ids) > 1 THEN NULL
                    ELSE coalesce(c.id, a.hidden) END AS found
    ) x;
END
$$;
