-- What is around some objects, in one row: nodes, edges and paths as JSON text, ready to be sent. problem says why there
-- is no answer: object_not_found, or type_unknown with the type as detail. missing are the roots that mean nothing here.
-- p_steps, p_phased and the bounds are those of walk_objects; p_dedupe and p_distinct say which edges and paths are told,
-- p_include which fields. p_paths: whether paths are wanted, p_most_paths how many of them at the most.
-- Runs with the rights of its caller, in a scope that is set.
CREATE OR REPLACE FUNCTION expand_objects(
    p_tenant text, p_project text, p_roots uuid[], p_steps jsonb, p_phased boolean, p_depth int, p_time timestamptz,
    p_fan int, p_cap int, p_most int, p_dedupe text, p_distinct boolean, p_paths boolean, p_most_paths int,
    p_include jsonb)
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
    v_reach record;
    v_roots uuid[];
    w record;
    v_found record;
    v_paths text[];
    v_heres uuid[];
    v_theres uuid[];
    v_chosen text;
    -- How much text of edges is told at the most; walk_objects has as much for nodes.
    v_bytes bigint := 33554432;
    v_total bigint;
BEGIN
    v_reach := reach_of(p_tenant, p_project);
    SELECT array_agg(DISTINCT f.canonical_id), array_agg(DISTINCT a.id::text) FILTER (WHERE f.asked IS NULL)
    INTO v_roots, missing
    FROM unnest(p_roots) a(id)
    LEFT JOIN find_roots(p_tenant, v_reach.objects, p_roots, p_time) f ON f.asked = a.id;
    v_roots := array_remove(v_roots, NULL);
    IF cardinality(v_roots) = 0 OR v_roots IS NULL THEN
        problem := 'object_not_found';
        RETURN NEXT;
        RETURN;
    END IF;
    detail := coalesce(
        check_types(p_tenant, v_reach.objects, 'object', ARRAY(
            SELECT t.type FROM jsonb_array_elements(p_steps) s(step)
            CROSS JOIN LATERAL jsonb_array_elements_text(s.step -> 'node_types') t(type))),
        check_types(p_tenant, v_reach.relationships, 'relationship', ARRAY(
            SELECT t.type FROM jsonb_array_elements(p_steps) s(step)
            CROSS JOIN LATERAL jsonb_array_elements_text(s.step -> 'edge_types') t(type))));
    IF detail IS NOT NULL THEN
        problem := 'type_unknown';
        RETURN NEXT;
        RETURN;
    END IF;
    w := walk_objects(
        p_tenant, v_reach.objects, v_reach.relationships, v_roots, p_steps, p_phased, false, p_depth, p_time, p_fan,
        p_cap, p_most, p_distinct OR (p_paths AND p_dedupe <> 'path'), p_include -> 'object');
    overflow := w.overflow;
    node_count := cardinality(w.nodes);
    depth_reached := w.depths[node_count];
    nodes := array_to_string(w.fragments, ',');
    IF p_dedupe = 'path' THEN
        v_found := list_paths(
            ARRAY(SELECT n.id FROM unnest(w.nodes, w.depths) n(id, depth) WHERE n.depth = 0), w.heres, w.theres,
            w.levels, p_depth, p_phased, p_most_paths);
        v_paths := v_found.paths;
        v_heres := v_found.heres;
        v_theres := v_found.theres;
    END IF;
    -- Which of what was crossed is told: each once and of several crossings the first, in the order of ids.
    v_chosen := 'SELECT DISTINCT ON (e.id) e.id AS canonical_id, '
        'CASE WHEN e.out THEN e.here ELSE e.there END AS src_id, '
        'CASE WHEN e.out THEN e.there ELSE e.here END AS dst_id, e.type, e.weight, e.level, e.here, e.there '
        'FROM unnest($1, $2, $3, $4, $5, $6, $7) e(id, here, there, out, type, weight, level) '
        || CASE WHEN p_distinct THEN 'WHERE e.id IN (SELECT unnest($8)) '
                WHEN p_dedupe = 'path'
                    THEN 'WHERE (e.here, e.there) IN (SELECT h.here, h.there FROM unnest($9, $10) h(here, there)) '
                ELSE '' END
        || 'ORDER BY e.id, e.level, e.here';
    IF cardinality(w.edges) > p_most THEN
        v_chosen := format('SELECT n.* FROM (SELECT c.* FROM (%s) c ORDER BY c.level, c.canonical_id LIMIT %s) n '
                           'ORDER BY n.canonical_id', v_chosen, p_most);
    END IF;
    IF p_include -> 'edge' -> 'stored' = 'true'::jsonb THEN
        v_chosen := format(
            'SELECT s.*, c.here, c.there FROM (%s) c CROSS JOIN LATERAL (SELECT r.* FROM graph_relationships r '
            'WHERE r.tenant_id = %L AND r.branch_id = ANY (%L::uuid[]) AND r.canonical_id = c.canonical_id OFFSET 0) s '
            'ORDER BY c.canonical_id', v_chosen, p_tenant, v_reach.relationships);
    END IF;
    v_chosen := format(
        'SELECT x.here, x.there, 1 AS total, concat(''{"id":"'', x.canonical_id, ''","src":"'', x.src_id, '
        '''","dst":"'', x.dst_id, ''"''%s, ''}'') AS fragment FROM (%s) x',
        fragment_clause(p_include -> 'edge'), v_chosen);
    IF p_include -> 'edge' -> 'stored' = 'true'::jsonb THEN
        -- Only these can be long.
        v_chosen := format(
            'SELECT s.here, s.there, s.total, s.fragment FROM ('
            'SELECT c.here, c.there, c.fragment, count(*) OVER () AS total, '
            'sum(octet_length(c.fragment)) OVER (ROWS UNBOUNDED PRECEDING) AS size FROM (%s) c) s WHERE s.size <= %s',
            v_chosen, v_bytes);
    END IF;
    EXECUTE format(
        'SELECT string_agg(x.fragment, '',''), count(*), max(x.total), %s FROM (%s) x',
        CASE WHEN p_paths AND p_dedupe = 'edge' THEN 'array_agg(x.here), array_agg(x.there)' ELSE 'NULL, NULL' END,
        v_chosen)
    INTO edges, edge_count, v_total, v_heres, v_theres
    USING w.edges, w.heres, w.theres, w.outs, w.types, w.weights, w.levels, w.links, v_heres, v_theres;
    IF v_total > edge_count THEN
        overflow := coalesce(overflow, 'edge');
    END IF;
    IF p_paths AND p_dedupe <> 'path' THEN
        -- Along the ways by which each was first reached.
        WITH RECURSIVE reached AS (
            SELECT r.id, r.parent FROM unnest(w.nodes, w.parents) r(id, parent)
        ), ways AS (
            SELECT r.id, '"' || r.id || '"' AS path FROM reached r WHERE r.parent IS NULL
            UNION ALL
            SELECT r.id, y.path || ',"' || r.id || '"' FROM ways y JOIN reached r ON r.parent = y.id
        )
        SELECT array_agg(k.path) INTO v_paths FROM (
            SELECT a.path FROM (
                SELECT y.path FROM ways y WHERE p_dedupe = 'node'
                UNION ALL
                SELECT y.path || ',"' || e.there || '"' FROM unnest(v_heres, v_theres) e(here, there)
                JOIN ways y ON y.id = e.here WHERE p_dedupe = 'edge'
            ) a
            ORDER BY length(a.path), a.path COLLATE "C" LIMIT p_most_paths + 1
        ) k;
    END IF;
    IF cardinality(v_paths) > p_most_paths THEN
        overflow := coalesce(overflow, 'path');
    END IF;
    paths := '[' || array_to_string(v_paths[:p_most_paths], '],[') || ']';
    RETURN NEXT;
END
$$;
