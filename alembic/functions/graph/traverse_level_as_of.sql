-- Returns one level of traverse_edges at a past time: the entities that edges of p_front lead to and that are not in
-- p_reached, with the places of their parents, their edges and confidences, and whether a limit left out edges. Part of
-- traverse_edges, whose settings apply.
CREATE OR REPLACE FUNCTION traverse_level_as_of(
    p_context read_context, p_traversal traversal, p_level int, p_front uuid[], p_offset int, p_reached uuid[],
    p_relations uuid[], p_min_trust double precision, p_limit int,
    OUT entities uuid[], OUT parents int[], OUT edges uuid[], OUT confidences double precision[], OUT hubs boolean)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := p_context.tenant_id;
    v_project text := p_context.project_id;
    v_scope text := p_context.scope;
    v_valid timestamptz := p_context.valid_at;
    v_known timestamptz := p_context.known_at;
    v_confidence double precision := p_traversal.min_confidence;
    v_trust double precision := p_traversal.min_source_trust;
    v_fan int := p_traversal.fans[p_level];
    v_out boolean := p_traversal.direction <> 'in';
    v_in boolean := p_traversal.direction <> 'out';
BEGIN
    SELECT array_agg(n.entity_id) FILTER (WHERE n.entity_id IS NOT NULL),
           array_agg(n.parent) FILTER (WHERE n.entity_id IS NOT NULL),
           array_agg(n.edge_id) FILTER (WHERE n.entity_id IS NOT NULL),
           array_agg(n.confidence) FILTER (WHERE n.entity_id IS NOT NULL),
           bool_or(n.entity_id IS NULL)
    INTO entities, parents, edges, confidences, hubs
    FROM (
        SELECT d.entity_id, d.parent, d.edge_id, d.confidence FROM (
            SELECT DISTINCT ON (1) CASE WHEN x.pick <= v_fan THEN x.entity_id END AS entity_id,
                   p_offset + f.place::int AS parent, x.edge_id, x.confidence
            FROM unnest(p_front) WITH ORDINALITY f(entity_id, place)
            CROSS JOIN LATERAL edges_as_of(
                v_tenant, v_project, v_scope, f.entity_id, v_out, v_in, p_relations, v_confidence, v_trust,
                p_min_trust, v_valid, v_known, v_fan + 1) x
            ORDER BY 1, x.confidence DESC, f.entity_id, x.edge_id DESC
        ) d
        WHERE NOT EXISTS (SELECT FROM unnest(p_reached) s(entity_id) WHERE s.entity_id = d.entity_id)
        ORDER BY d.entity_id IS NOT NULL, d.confidence DESC, d.entity_id LIMIT p_limit
    ) n;
END
$$;
