-- Return one page of a walk in one row: nodes by depth and id as JSON text, and with each node the edges whose other
-- end comes before it. p_options: branch, depth, as_of, max_nodes, max_edges, after_depth and after_id (the page begins
-- after that node, or with `backward` ends before it; NULL: the first page, or the last), backward and limit. starts
-- and ends: the positions of the page among all nodes, from 0. problem: object_not_found when no root exists here. Runs
-- with the rights of its caller, in a scope that is set.
CREATE OR REPLACE FUNCTION traverse_objects(
    p_tenant text, p_project text, p_roots uuid[], p_steps jsonb, p_options jsonb)
RETURNS TABLE (
    problem text, roots text[], nodes text, edges text, total int, edge_count int, starts int, ends int,
    first_depth int, first_id text, last_depth int, last_id text, depth_reached int, truncated boolean)
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
    w record;
    v_roots uuid[];
    v_from int;
    v_to int;
BEGIN
    SELECT * INTO o FROM jsonb_to_record(p_options) AS x(
        branch text, depth int, as_of timestamptz, max_edges int, after_depth int, after_id uuid, backward boolean,
        "limit" int);
    IF o.as_of IS NOT NULL THEN
        PERFORM check_as_of(p_tenant, p_project, o.as_of);
    END IF;
    b := walk_branches(p_tenant, p_project, o.branch);
    v_roots := ARRAY(
        SELECT DISTINCT f.canonical_id FROM find_roots(p_tenant, b.objects, p_roots, NULL, o.as_of) f ORDER BY 1);
    IF v_roots = '{}' THEN
        problem := 'object_not_found';
        RETURN NEXT;
        RETURN;
    END IF;
    roots := v_roots::text[];
    w := walk_objects(
        p_tenant, b.objects, b.relationships, v_roots, p_steps,
        p_options || jsonb_build_object(
            'phased', false, 'filter_roots', true, 'parents', false, 'edges_per_node', o.max_edges),
        '{"fields": ["type", "key", "labels"]}');
    total := cardinality(w.nodes);
    depth_reached := coalesce(w.depths[total], 0);
    truncated := w.overflow IS NOT NULL;
    SELECT least(count(*), o.max_edges) INTO edge_count FROM (SELECT DISTINCT e.id FROM unnest(w.edges) e(id)) d;
    IF o.backward THEN
        SELECT count(*) INTO v_to FROM unnest(w.nodes, w.depths) n(id, depth)
        WHERE o.after_id IS NULL OR (n.depth, n.id) < (o.after_depth, o.after_id);
        v_from := greatest(1, v_to - o."limit" + 1);
    ELSE
        SELECT count(*) + 1 INTO v_from FROM unnest(w.nodes, w.depths) n(id, depth)
        WHERE (n.depth, n.id) <= (o.after_depth, o.after_id);
        v_to := least(total, v_from + o."limit" - 1);
    END IF;
    starts := v_from - 1;
    ends := v_to - 1;
    first_depth := w.depths[v_from];
    first_id := w.nodes[v_from];
    last_depth := w.depths[v_to];
    last_id := w.nodes[v_to];
    nodes := array_to_string(w.fragments[v_from:v_to], ',');
    SELECT string_agg('{"id":"' || e.id || '","type":' || to_json(e.type) || ',"src_id":"' || e.src || '","dst_id":"'
                      || e.dst || '"}', ',' ORDER BY greatest(s.place, d.place), e.id)
    INTO edges
    FROM (
        SELECT c.* FROM (
            SELECT DISTINCT ON (e.id) e.id, CASE WHEN e.forward THEN e.from_id ELSE e.to_id END AS src,
                   CASE WHEN e.forward THEN e.to_id ELSE e.from_id END AS dst, e.type, e.level
            FROM unnest(w.edges, w.from_ids, w.to_ids, w.forwards, w.types, w.levels)
                 e(id, from_id, to_id, forward, type, level)
            ORDER BY e.id, e.level
        ) c
        ORDER BY c.level, c.id LIMIT o.max_edges
    ) e
    JOIN unnest(w.nodes) WITH ORDINALITY s(id, place) ON s.id = e.src
    JOIN unnest(w.nodes) WITH ORDINALITY d(id, place) ON d.id = e.dst
    WHERE greatest(s.place, d.place) BETWEEN v_from AND v_to;
    RETURN NEXT;
END
$$;
