-- Which entities these names or ids mean: a canonical name beats an alias, a merged entity is what it became.
-- OFFSET 0 keeps each a lookup: a plan made while the tables were small would read them whole for ever after.
-- Runs with the rights of its caller: a reader finds what they may see, a definer function what there is.
CREATE OR REPLACE FUNCTION resolve_entities(p_tenant text, p_project text, p_names json)
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
           CASE WHEN x.found IS NOT NULL THEN 'found'
                WHEN n.norm IS NULL THEN 'unknown'
                WHEN cardinality(a.ids) > 1 THEN 'ambiguous'
                ELSE 'absent' END,
           CASE WHEN x.found IS NULL AND cardinality(a.ids) > 1 THEN a.ids END
    FROM json_to_recordset(p_names) AS n(ref int, entity_id uuid, norm text)
    LEFT JOIN LATERAL (
        SELECT coalesce(e.merged_into, e.entity_id) AS id
        FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.canonical_norm = n.norm
        OFFSET 0
    ) c ON true
    LEFT JOIN LATERAL (
        SELECT coalesce(x.merged_into, x.entity_id) AS id
        FROM (SELECT e.merged_into, e.entity_id, e.project_id FROM graph_entities e
              WHERE n.norm IS NULL AND e.tenant_id = p_tenant AND e.entity_id = n.entity_id OFFSET 0) x
        WHERE x.project_id = p_project
    ) i ON true
    LEFT JOIN LATERAL (
        -- What is suppressed must not make a name ambiguous for those who cannot see it.
        SELECT coalesce(array_agg(DISTINCT s.entity_id) FILTER (WHERE s.suppression = 0),
                        (array_agg(DISTINCT s.entity_id))[1:1]) AS ids
        FROM (
            SELECT a.entity_id, a.suppression FROM graph_entity_aliases a
            WHERE c.id IS NULL AND a.tenant_id = p_tenant AND a.project_id = p_project
              AND a.alias_norm BETWEEN n.norm AND n.norm
            ORDER BY a.alias_norm OFFSET 0
        ) s
    ) a ON true
    CROSS JOIN LATERAL (
        SELECT coalesce(c.id, i.id, CASE WHEN cardinality(a.ids) = 1 THEN a.ids[1] END) AS found
    ) x;
END
$$;
