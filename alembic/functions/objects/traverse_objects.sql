-- One page of what is around some objects, in one row: nodes in the order of depth and id as JSON text, and with each
-- those edges whose other end comes before it. p_after_depth and p_after say after whom the page begins, or, where
-- p_back, before whom it ends; neither: at the beginning, or the end. starts and ends are the places of the page among
-- all, counted from 0. problem: object_not_found when no root means anything here. The bounds are those of walk_objects.
-- Runs with the rights of its caller, in a scope that is set.
CREATE OR REPLACE FUNCTION traverse_objects(
    p_tenant text, p_project text, p_roots uuid[], p_steps jsonb, p_depth int, p_cap int, p_most int,
    p_after_depth int, p_after uuid, p_back boolean, p_limit int)
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
    v_reach record;
    v_roots uuid[];
    w record;
    v_from int;
    v_to int;
BEGIN
    v_reach := reach_of(p_tenant, p_project);
    v_roots := ARRAY(
        SELECT DISTINCT f.canonical_id FROM find_roots(p_tenant, v_reach.objects, p_roots, NULL) f ORDER BY 1);
    IF v_roots = '{}' THEN
        problem := 'object_not_found';
        RETURN NEXT;
        RETURN;
    END IF;
    roots := v_roots::text[];
    w := walk_objects(
        p_tenant, v_reach.objects, v_reach.relationships, v_roots, p_steps, false, true, p_depth, NULL, p_most, p_cap,
        p_most, false, '{"fields": ["type", "key", "labels"]}');
    total := cardinality(w.nodes);
    depth_reached := coalesce(w.depths[total], 0);
    truncated := w.overflow IS NOT NULL;
    SELECT least(count(*), p_most) INTO edge_count FROM (SELECT DISTINCT e.id FROM unnest(w.edges) e(id)) d;
    IF p_back THEN
        SELECT count(*) INTO v_to FROM unnest(w.nodes, w.depths) n(id, depth)
        WHERE p_after IS NULL OR (n.depth, n.id) < (p_after_depth, p_after);
        v_from := greatest(1, v_to - p_limit + 1);
    ELSE
        SELECT count(*) + 1 INTO v_from FROM unnest(w.nodes, w.depths) n(id, depth)
        WHERE (n.depth, n.id) <= (p_after_depth, p_after);
        v_to := least(total, v_from + p_limit - 1);
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
            SELECT DISTINCT ON (e.id) e.id, CASE WHEN e.out THEN e.here ELSE e.there END AS src,
                   CASE WHEN e.out THEN e.there ELSE e.here END AS dst, e.type, e.level
            FROM unnest(w.edges, w.heres, w.theres, w.outs, w.types, w.levels) e(id, here, there, out, type, level)
            ORDER BY e.id, e.level
        ) c
        ORDER BY c.level, c.id LIMIT p_most
    ) e
    JOIN unnest(w.nodes) WITH ORDINALITY s(id, place) ON s.id = e.src
    JOIN unnest(w.nodes) WITH ORDINALITY d(id, place) ON d.id = e.dst
    WHERE greatest(s.place, d.place) BETWEEN v_from AND v_to;
    RETURN NEXT;
END
$$;
