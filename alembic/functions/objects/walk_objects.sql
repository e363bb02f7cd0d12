-- Walk the graph of objects level by level from some roots, and return the nodes reached and the edges followed.
-- p_steps: what may be followed and reached, one step for all levels or, with `phased`, one for each level, which then
-- starts from all nodes that the level before has reached. p_bounds: phased, depth, time, as_of, edges_per_node (the
-- heaviest), max_nodes (the lowest ids of a level; reaching it ends the walk), max_edges (exceeding it ends the walk
-- after that level), filter_roots (whether roots have to pass the filters) and parents (whether to return them).
-- p_fields: the fields of the JSON fragments. Nodes are ordered by depth and id; parents and links are the node and the
-- edge by which each was first reached: from the lowest id, over the heaviest edge, then the highest id. Edges are
-- returned as often as they were followed, with the nodes they were followed from and to, whether along their direction
-- (forwards), and the level. overflow is the limit that left something out: node before edge. Runs with the rights of
-- its caller.
CREATE OR REPLACE FUNCTION walk_objects(
    p_tenant text, p_object_branches uuid[], p_relationship_branches uuid[], p_roots uuid[], p_steps jsonb,
    p_bounds jsonb, p_fields jsonb,
    OUT nodes uuid[], OUT depths int[], OUT fragments text[], OUT parents uuid[], OUT links uuid[],
    OUT edges uuid[], OUT from_ids uuid[], OUT to_ids uuid[], OUT forwards boolean[], OUT types text[],
    OUT weights double precision[], OUT levels int[], OUT overflow text)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_nestloop = off
SET enable_mergejoin = off
SET jit = off
SET work_mem = 65536
AS $$
#variable_conflict use_column
DECLARE
    b record;
    q record;
    e record;
    n record;
    w record;
    v_step jsonb;
    v_node_query text;
    v_level_full boolean;
    -- The most text of nodes that a walk returns; expand_objects has the same limit for edges.
    v_bytes bigint := 33554432;
    -- Nodes are read in slices, which are small where a single node may be long.
    v_slice int := CASE WHEN p_fields ? 'properties' OR p_fields -> 'fields' ? 'evidence' THEN 100 ELSE 20000 END;
    -- The most edges of one level, whatever the bounds; a level with more ends the walk.
    c_level_edges CONSTANT int := 1000000;
BEGIN
    SELECT * INTO b FROM jsonb_to_record(p_bounds) AS x(
        phased boolean, filter_roots boolean, depth int, "time" timestamptz, as_of timestamptz, edges_per_node int,
        max_nodes int, max_edges int, parents boolean);
    nodes := '{}'; depths := '{}'; fragments := '{}'; parents := '{}'; links := '{}';
    edges := '{}'; from_ids := '{}'; to_ids := '{}'; forwards := '{}'; types := '{}'; weights := '{}'; levels := '{}';
    FOR v_level IN 0 .. b.depth LOOP
        IF v_level <= 1 OR b.phased THEN
            v_step := p_steps -> CASE WHEN b.phased AND v_level > 0 THEN v_level - 1 ELSE 0 END;
            v_node_query := walk_node_query(
                p_tenant, p_object_branches, v_step, b.time, b.as_of, v_level > 0 OR b.filter_roots, p_fields);
        END IF;
        IF v_level = 0 THEN
            n := reach_nodes(v_node_query, nodes, p_roots, false, 0, b.max_nodes, v_slice, v_bytes);
            parents := array_fill(NULL::uuid, ARRAY[cardinality(n.ids)]);
            links := parents;
        ELSE
            IF v_level = 1 OR b.phased THEN
                q := walk_edge_queries(
                    p_tenant, p_relationship_branches, v_step, b.time, b.as_of, b.edges_per_node, c_level_edges + 1);
            END IF;
            EXIT WHEN q.follow IS NULL;
            e := follow_edges(q.follow, q.beyond, n.front, b.edges_per_node);
            EXIT WHEN e.edges IS NULL;
            IF e.has_more THEN
                overflow := 'edge';
            END IF;
            v_level_full := cardinality(e.edges) > c_level_edges;
            n := reach_nodes(
                v_node_query, nodes, e.to_ids, b.phased, v_level, b.max_nodes - cardinality(nodes), v_slice, v_bytes);
        END IF;
        v_bytes := v_bytes - n.bytes;
        IF n.is_full THEN
            overflow := 'node';
        END IF;
        IF v_level > 0 THEN
            IF n.tried > cardinality(n.front) THEN
                e := keep_edges(
                    e.edges, e.from_ids, e.to_ids, e.forwards, e.types, e.weights,
                    CASE WHEN b.phased THEN n.front ELSE nodes || n.ids END);
                EXIT WHEN e.edges IS NULL;
            END IF;
            IF b.parents AND n.ids <> '{}' THEN
                w := first_edges(n.ids, e.edges, e.from_ids, e.to_ids, e.weights);
                parents := parents || w.parents;
                links := links || w.links;
            END IF;
            edges := edges || e.edges;
            from_ids := from_ids || e.from_ids;
            to_ids := to_ids || e.to_ids;
            forwards := forwards || e.forwards;
            types := types || e.types;
            weights := weights || e.weights;
            levels := levels || array_fill(v_level, ARRAY[cardinality(e.edges)]);
        END IF;
        nodes := nodes || n.ids;
        fragments := fragments || n.texts;
        depths := depths || array_fill(v_level, ARRAY[cardinality(n.ids)]);
        EXIT WHEN overflow = 'node';
        IF v_level_full OR (cardinality(edges) > b.max_edges
            AND (SELECT count(*) FROM (SELECT DISTINCT d.id FROM unnest(edges) d(id)) c) > b.max_edges) THEN
            overflow := 'edge';
            EXIT;
        END IF;
        EXIT WHEN n.front = '{}';
    END LOOP;
END
$$;
