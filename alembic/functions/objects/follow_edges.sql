-- Return the edges of a walk from p_nodes by the statements of walk_edge_queries, and whether some node has more than
-- p_edges_per_node. edges is NULL when there are none. Runs with the rights and the planner settings of walk_objects.
CREATE OR REPLACE FUNCTION follow_edges(
    p_follow text, p_beyond text, p_nodes uuid[], p_edges_per_node int,
    OUT edges uuid[], OUT from_ids uuid[], OUT to_ids uuid[], OUT forwards boolean[], OUT types text[],
    OUT weights double precision[], OUT has_more boolean)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_full uuid[];
BEGIN
    EXECUTE p_follow INTO edges, from_ids, to_ids, forwards, types, weights USING p_nodes;
    -- Only a node with as many edges as are followed can have more.
    IF cardinality(edges) >= p_edges_per_node THEN
        v_full := ARRAY(SELECT f.id FROM unnest(from_ids) f(id) GROUP BY f.id HAVING count(*) = p_edges_per_node);
        IF v_full <> '{}' THEN
            EXECUTE p_beyond INTO has_more USING v_full;
        END IF;
    END IF;
END
$$;
