-- Return paths as JSON text, shorter ones first, at most p_limit: with p_dedupe node the path by which each node was
-- first reached, with edge for each edge the path by which it was first followed. Runs with the planner settings of
-- expand_objects.
CREATE OR REPLACE FUNCTION first_paths(
    p_nodes uuid[], p_parents uuid[], p_from_ids uuid[], p_to_ids uuid[], p_dedupe text, p_limit int)
RETURNS text[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_paths text[];
BEGIN
    WITH RECURSIVE reached AS (
        SELECT r.id, r.parent FROM unnest(p_nodes, p_parents) r(id, parent)
    ), node_paths AS (
        SELECT r.id, '"' || r.id || '"' AS path FROM reached r WHERE r.parent IS NULL
        UNION ALL
        SELECT r.id, n.path || ',"' || r.id || '"' FROM node_paths n JOIN reached r ON r.parent = n.id
    )
    SELECT array_agg(k.path) INTO v_paths FROM (
        SELECT a.path FROM (
            SELECT n.path FROM node_paths n WHERE p_dedupe = 'node'
            UNION ALL
            SELECT n.path || ',"' || e.to_id || '"' FROM unnest(p_from_ids, p_to_ids) e(from_id, to_id)
            JOIN node_paths n ON n.id = e.from_id WHERE p_dedupe = 'edge'
        ) a
        ORDER BY length(a.path), a.path COLLATE "C" LIMIT p_limit
    ) k;
    RETURN v_paths;
END
$$;
