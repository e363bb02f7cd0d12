-- Which entities these names or ids mean: a canonical name beats an alias, a merged entity is what it became.
-- Runs with the rights of its caller: a reader finds what they may see, a definer function what there is.
CREATE OR REPLACE FUNCTION resolve_entities(p_tenant text, p_project text, p_names json)
RETURNS TABLE (ref int, entity_id uuid, state text, candidates uuid[])
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
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
    ) c ON true
    LEFT JOIN LATERAL (
        SELECT coalesce(e.merged_into, e.entity_id) AS id
        FROM graph_entities e
        WHERE n.norm IS NULL AND e.tenant_id = p_tenant AND e.project_id = p_project AND e.entity_id = n.entity_id
    ) i ON true
    LEFT JOIN LATERAL (
        -- What is suppressed must not make a name ambiguous for those who cannot see it.
        SELECT coalesce(array_agg(DISTINCT s.entity_id) FILTER (WHERE s.suppression = 0),
                        array_agg(DISTINCT s.entity_id)) AS ids
        FROM graph_entity_aliases s
        WHERE c.id IS NULL AND s.tenant_id = p_tenant AND s.project_id = p_project AND s.alias_norm = n.norm
    ) a ON true
    CROSS JOIN LATERAL (
        SELECT coalesce(c.id, i.id, CASE WHEN cardinality(a.ids) = 1 THEN a.ids[1] END) AS found
    ) x;
END
$$;
