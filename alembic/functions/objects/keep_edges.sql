-- Return those of a walk's edges that lead to one of p_nodes: an edge is only returned with both of its ends. edges is
-- NULL when none is left. Runs with the planner settings of walk_objects, so that arrays are joined by hash.
CREATE OR REPLACE FUNCTION keep_edges(
    p_edges uuid[], p_from_ids uuid[], p_to_ids uuid[], p_forwards boolean[], p_types text[],
    p_weights double precision[], p_nodes uuid[],
    OUT edges uuid[], OUT from_ids uuid[], OUT to_ids uuid[], OUT forwards boolean[], OUT types text[],
    OUT weights double precision[])
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
BEGIN
    SELECT array_agg(e.id), array_agg(e.from_id), array_agg(e.to_id), array_agg(e.forward), array_agg(e.type),
           array_agg(e.weight)
    INTO edges, from_ids, to_ids, forwards, types, weights
    FROM unnest(p_edges, p_from_ids, p_to_ids, p_forwards, p_types, p_weights)
         e(id, from_id, to_id, forward, type, weight)
    WHERE EXISTS (SELECT FROM unnest(p_nodes) n(id) WHERE n.id = e.to_id);
END
$$;
