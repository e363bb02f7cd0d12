-- Return the neighbourhood of some objects in one row: nodes, edges and paths as JSON text that is sent as it is.
-- problem: object_not_found, or type_unknown with the type as detail. missing: the roots that do not exist here.
-- p_steps and the bounds are those of walk_objects; p_include: the fields of objects and edges. p_options: branch,
-- phased, depth, time, as_of, edges_per_node, max_nodes, max_edges, dedupe (node, edge or path: which paths and edges
-- to return), distinct (only edges by which a node was first reached), paths (whether to return them) and max_paths.
-- Runs with the rights of its caller, in a scope that is set.
CREATE OR REPLACE FUNCTION expand_objects(
    p_tenant text, p_project text, p_roots uuid[], p_steps jsonb, p_include jsonb, p_options jsonb)
RETURNS TABLE (
    problem text, detail text, missing text[], nodes text, edges text, paths text, node_count int, edge_count int,
    depth_reached int, overflow text)
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
    o record;
    b record;
    c record;
    w record;
    v_found record;
    v_paths text[];
    v_from_ids uuid[];
    v_to_ids uuid[];
    v_total bigint;
BEGIN
    SELECT * INTO o FROM jsonb_to_record(p_options) AS x(
        branch text, phased boolean, depth int, "time" timestamptz, as_of timestamptz, max_edges int, dedupe text,
        "distinct" boolean, paths boolean, max_paths int);
    IF o.as_of IS NOT NULL THEN
        PERFORM check_as_of(p_tenant, p_project, o.as_of);
    END IF;
    b := walk_branches(p_tenant, p_project, o.branch);
    c := check_expansion(p_tenant, b.objects, b.relationships, p_roots, p_steps, o.time, o.as_of);
    problem := c.problem;
    detail := c.detail;
    missing := c.missing;
    IF problem IS NOT NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    w := walk_objects(
        p_tenant, b.objects, b.relationships, c.roots, p_steps,
        p_options || jsonb_build_object(
            'filter_roots', false, 'parents', o.distinct OR (o.paths AND o.dedupe <> 'path')),
        p_include -> 'object');
    overflow := w.overflow;
    node_count := cardinality(w.nodes);
    depth_reached := w.depths[node_count];
    nodes := array_to_string(w.fragments, ',');
    IF o.dedupe = 'path' THEN
        v_found := simple_paths(
            ARRAY(SELECT n.id FROM unnest(w.nodes, w.depths) n(id, depth) WHERE n.depth = 0), w.from_ids, w.to_ids,
            w.levels, o.depth, o.phased, o.max_paths);
        v_paths := v_found.paths;
        v_from_ids := v_found.from_ids;
        v_to_ids := v_found.to_ids;
    END IF;
    EXECUTE format(
        'SELECT string_agg(x.fragment, '',''), count(*), max(x.total), %s FROM (%s) x',
        CASE WHEN o.paths AND o.dedupe = 'edge' THEN 'array_agg(x.from_id), array_agg(x.to_id)' ELSE 'NULL, NULL' END,
        expand_edge_query(
            p_tenant, b.relationships, p_include -> 'edge',
            CASE WHEN o.distinct THEN 'first' WHEN o.dedupe = 'path' THEN 'path' ELSE 'all' END,
            CASE WHEN cardinality(w.edges) > o.max_edges THEN o.max_edges END, o.as_of))
    INTO edges, edge_count, v_total, v_from_ids, v_to_ids
    USING w.edges, w.from_ids, w.to_ids, w.forwards, w.types, w.weights, w.levels, w.links, v_from_ids, v_to_ids;
    IF v_total > edge_count THEN
        overflow := coalesce(overflow, 'edge');
    END IF;
    IF o.paths AND o.dedupe <> 'path' THEN
        v_paths := first_paths(w.nodes, w.parents, v_from_ids, v_to_ids, o.dedupe, o.max_paths + 1);
    END IF;
    IF cardinality(v_paths) > o.max_paths THEN
        overflow := coalesce(overflow, 'path');
    END IF;
    paths := '[' || array_to_string(v_paths[:o.max_paths], '],[') || ']';
    RETURN NEXT;
END
$$;
