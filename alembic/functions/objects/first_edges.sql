-- Return by which node (parents) and edge (links) each of p_nodes was first reached, ordered by the ids of p_nodes:
-- from the lowest id, over the heaviest edge, then the highest id. Runs with the planner settings of walk_objects.
CREATE OR REPLACE FUNCTION first_edges(
    p_nodes uuid[], p_edges uuid[], p_from_ids uuid[], p_to_ids uuid[], p_weights double precision[],
    OUT parents uuid[], OUT links uuid[])
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
BEGIN
    SELECT array_agg(w.from_id ORDER BY w.to_id), array_agg(w.id ORDER BY w.to_id) INTO parents, links
    FROM (
        SELECT DISTINCT ON (e.to_id) e.to_id, e.from_id, e.id
        FROM unnest(p_edges, p_from_ids, p_to_ids, p_weights) e(id, from_id, to_id, weight)
        WHERE EXISTS (SELECT FROM unnest(p_nodes) n(id) WHERE n.id = e.to_id)
        ORDER BY e.to_id, e.from_id, e.weight DESC NULLS LAST, e.id DESC
    ) w;
END
$$;
