-- Walks the graph of objects from some of them, level by level: who is reached in how many hops and by which way, and
-- which relationships were crossed. p_steps says what may be crossed and reached: one step for all levels, or, where
-- p_phased, one for each, which then goes on from all that the one before has reached. Roots have to pass only
-- where p_strict. Objects come in the order of hops, then ids; parents and links say over which object and relationship
-- one was first reached, where p_ways asks for it: from the lowest id, by the heaviest relationship, of these the
-- highest id. Crossed relationships come as often as they were met: from where, to where, whether along their direction,
-- and at which level. Of one object at most p_fan are crossed, the heaviest; p_cap objects are reached, the lowest ids of
-- a level, and that ends the walk; so does a level after which more than p_most relationships were crossed. overflow says
-- which bound left something out, of several the first of node and edge. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION walk_objects(
    p_tenant text, p_objects uuid[], p_relationships uuid[], p_roots uuid[], p_steps jsonb, p_phased boolean,
    p_strict boolean, p_depth int, p_time timestamptz, p_fan int, p_cap int, p_most int, p_ways boolean,
    p_include jsonb,
    OUT nodes uuid[], OUT depths int[], OUT fragments text[], OUT parents uuid[], OUT links uuid[],
    OUT edges uuid[], OUT heres uuid[], OUT theres uuid[], OUT outs boolean[], OUT types text[],
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
    v_fragment text := fragment_clause(p_include);
    v_step jsonb;
    v_side text[];
    v_branch uuid;
    v_legs text[];
    v_cross text;
    v_look text;
    v_clause text;
    v_front uuid[];
    v_room int;
    v_tried uuid[];
    v_new uuid[];
    v_texts text[];
    v_edges uuid[];
    v_heres uuid[];
    v_theres uuid[];
    v_outs boolean[];
    v_types text[];
    v_weights double precision[];
    v_beyond text;
    v_hubs uuid[];
    v_hub boolean;
    v_reached uuid[];
    v_parents uuid[];
    v_links uuid[];
    -- How much text is told at the most, and how many objects are read at a time where each may be long.
    v_bytes bigint := 33554432;
    v_slice int := CASE WHEN p_include ? 'properties' OR p_include -> 'fields' ? 'evidence' THEN 100 ELSE 20000 END;
    v_seen record;
    -- As much as one level crosses, whatever the bounds of the request; what goes beyond it ends the walk.
    c_level CONSTANT int := 1000000;
    v_full boolean;
BEGIN
    nodes := '{}'; depths := '{}'; fragments := '{}'; parents := '{}'; links := '{}';
    edges := '{}'; heres := '{}'; theres := '{}'; outs := '{}'; types := '{}'; weights := '{}'; levels := '{}';
    FOR v_level IN 0 .. p_depth LOOP
        -- What is asked is composed anew where it differs from the level before; every value in it is a quoted literal.
        IF v_level <= 1 OR p_phased THEN
            v_step := p_steps -> CASE WHEN p_phased AND v_level > 0 THEN v_level - 1 ELSE 0 END;
            v_clause := CASE WHEN p_time IS NULL THEN '' ELSE format(
                ' AND coalesce(x.effective_from <= %1$L::timestamptz, true)'
                ' AND coalesce(x.effective_to > %1$L::timestamptz, true)', p_time) END;
            IF v_level > 0 OR p_strict THEN
                v_clause := v_clause
                    || CASE WHEN v_step ? 'node_types' THEN format(' AND x.type = ANY (%L::text[])',
                           ARRAY(SELECT jsonb_array_elements_text(v_step -> 'node_types'))) ELSE '' END
                    || CASE WHEN v_step ? 'labels' THEN format(' AND x.labels && %L::text[]',
                           ARRAY(SELECT jsonb_array_elements_text(v_step -> 'labels'))) ELSE '' END
                    || filter_clause(v_step -> 'node');
            END IF;
            v_look := format(
                'SELECT array_agg(n.canonical_id), array_agg(n.fragment) FROM ('
                'SELECT n.canonical_id, n.fragment FROM unnest($1) WITH ORDINALITY o(id, place) CROSS JOIN LATERAL ('
                'SELECT x.canonical_id, concat(''{"id":"'', x.canonical_id, ''"''%s, $3) AS fragment '
                'FROM graph_objects x WHERE x.tenant_id = %L AND x.branch_id %s '
                'AND x.canonical_id = o.id AND x.deleted_at IS NULL%s OFFSET 0) n ORDER BY o.place LIMIT $2) n',
                v_fragment, p_tenant,
                CASE WHEN cardinality(p_objects) = 1 THEN format('= %L', p_objects[1])
                     ELSE format('= ANY (%L::uuid[])', p_objects) END,
                v_clause);
        END IF;
        IF v_level = 0 THEN
            v_tried := ARRAY(SELECT DISTINCT r.id FROM unnest(p_roots) r(id) ORDER BY r.id);
            v_seen := look_at_objects(v_look, v_tried, p_cap + 1, ',"depth":0}', v_slice, v_bytes);
            v_new := v_seen.ids;
            v_texts := v_seen.texts;
            v_bytes := v_bytes - v_seen.bytes;
            v_front := coalesce(v_new[:p_cap], '{}');
            IF cardinality(v_new) > p_cap OR v_seen.is_full THEN
                overflow := 'node';
            END IF;
            nodes := v_front;
            fragments := coalesce(v_texts[:p_cap], '{}');
            depths := array_fill(0, ARRAY[cardinality(v_front)]);
            parents := array_fill(NULL::uuid, ARRAY[cardinality(v_front)]);
            links := parents;
            EXIT WHEN overflow = 'node' OR v_front = '{}';
            CONTINUE;
        END IF;
        IF v_level = 1 OR p_phased THEN
            v_clause := CASE WHEN v_step ? 'edge_types' THEN format(' AND x.type = ANY (%L::text[])',
                    ARRAY(SELECT jsonb_array_elements_text(v_step -> 'edge_types'))) ELSE '' END
                || CASE WHEN p_time IS NULL THEN '' ELSE format(
                    ' AND coalesce(x.valid_from <= %1$L::timestamptz, true)'
                    ' AND coalesce(x.valid_to > %1$L::timestamptz, true)', p_time) END
                || filter_clause(v_step -> 'edge');
            v_legs := '{}';
            FOREACH v_branch IN ARRAY p_relationships LOOP
                IF v_step ->> 'direction' <> 'in' THEN
                    v_legs := v_legs || format(
                        '(SELECT x.canonical_id, x.dst_id AS there, true AS out, x.type, x.weight '
                        'FROM graph_relationships x WHERE x.tenant_id = %L AND x.branch_id = %L AND x.src_id = f.id '
                        'AND x.deleted_at IS NULL%s ORDER BY x.weight DESC NULLS LAST, x.canonical_id DESC LIMIT %s)',
                        p_tenant, v_branch, v_clause, p_fan + 1);
                END IF;
                IF v_step ->> 'direction' <> 'out' THEN
                    v_legs := v_legs || format(
                        '(SELECT x.canonical_id, x.src_id AS there, false AS out, x.type, x.weight '
                        'FROM graph_relationships x WHERE x.tenant_id = %L AND x.branch_id = %L AND x.dst_id = f.id '
                        'AND x.deleted_at IS NULL%s%s '
                        'ORDER BY x.weight DESC NULLS LAST, x.canonical_id DESC LIMIT %s)',
                        p_tenant, v_branch, v_clause,
                        CASE WHEN v_step ->> 'direction' = 'both' THEN ' AND x.src_id <> x.dst_id' ELSE '' END,
                        p_fan + 1);
                END IF;
            END LOOP;
            v_beyond := format('(SELECT u.* FROM (%s) u ORDER BY u.weight DESC NULLS LAST, u.canonical_id DESC',
                               array_to_string(v_legs, ' UNION ALL '));
            v_cross := format(
                'SELECT array_agg(c.canonical_id), array_agg(c.id), array_agg(c.there), array_agg(c.out), '
                'array_agg(c.type), array_agg(c.weight) FROM ('
                'SELECT e.*, f.id FROM unnest($1) f(id) CROSS JOIN LATERAL %s LIMIT %s) e LIMIT %s) c',
                v_beyond, p_fan, c_level + 1);
            v_beyond := format(
                'SELECT EXISTS (SELECT FROM unnest($1) f(id) CROSS JOIN LATERAL %s OFFSET %s LIMIT 1) e)',
                v_beyond, p_fan);
        END IF;
        EXIT WHEN v_legs = '{}';
        EXECUTE v_cross INTO v_edges, v_heres, v_theres, v_outs, v_types, v_weights USING v_front;
        EXIT WHEN v_edges IS NULL;
        v_full := cardinality(v_edges) > c_level;
        -- Whose edges are as many as are crossed may have more.
        IF cardinality(v_edges) >= p_fan THEN
            v_hubs := ARRAY(SELECT h.id FROM unnest(v_heres) h(id) GROUP BY h.id HAVING count(*) = p_fan);
            IF v_hubs <> '{}' THEN
                EXECUTE v_beyond INTO v_hub USING v_hubs;
                IF v_hub THEN
                    overflow := 'edge';
                END IF;
            END IF;
        END IF;
        v_room := p_cap - cardinality(nodes);
        -- Joins of arrays go by hash: nested loops would grow with the square.
        IF p_phased THEN
            v_tried := ARRAY(SELECT DISTINCT e.id FROM unnest(v_theres) e(id) ORDER BY e.id);
            v_seen := look_at_objects(v_look, v_tried, NULL, format(',"depth":%s}', v_level), v_slice, v_bytes);
            v_reached := v_seen.ids;
            v_texts := v_seen.texts;
            SELECT array_agg(n.id ORDER BY n.id), array_agg(n.fragment ORDER BY n.id) INTO v_new, v_texts
            FROM unnest(v_reached, v_texts) n(id, fragment)
            WHERE NOT EXISTS (SELECT FROM unnest(nodes) s(id) WHERE s.id = n.id);
            v_front := ARRAY(
                SELECT n.id FROM unnest(v_reached) n(id)
                WHERE NOT EXISTS (SELECT FROM unnest(v_new[v_room + 1 :]) s(id) WHERE s.id = n.id) ORDER BY n.id);
        ELSE
            v_tried := ARRAY(
                SELECT DISTINCT e.id FROM unnest(v_theres) e(id)
                WHERE NOT EXISTS (SELECT FROM unnest(nodes) s(id) WHERE s.id = e.id) ORDER BY e.id);
            v_seen := look_at_objects(v_look, v_tried, v_room + 1, format(',"depth":%s}', v_level), v_slice, v_bytes);
            v_new := v_seen.ids;
            v_texts := v_seen.texts;
            v_front := coalesce(v_new[:v_room], '{}');
        END IF;
        v_bytes := v_bytes - v_seen.bytes;
        IF cardinality(v_new) > v_room OR v_seen.is_full THEN
            overflow := 'node';
            v_new := v_new[:v_room];
            v_texts := v_texts[:v_room];
        END IF;
        v_new := coalesce(v_new, '{}');
        IF cardinality(v_tried) > cardinality(v_front) THEN
            -- Some lead to where nobody is, or may be: what is crossed has both its ends in the answer.
            v_reached := CASE WHEN p_phased THEN v_front ELSE nodes || v_new END;
            SELECT array_agg(e.id), array_agg(e.here), array_agg(e.there), array_agg(e.out), array_agg(e.type),
                   array_agg(e.weight)
            INTO v_edges, v_heres, v_theres, v_outs, v_types, v_weights
            FROM unnest(v_edges, v_heres, v_theres, v_outs, v_types, v_weights) e(id, here, there, out, type, weight)
            WHERE EXISTS (SELECT FROM unnest(v_reached) s(id) WHERE s.id = e.there);
            EXIT WHEN v_edges IS NULL;
        END IF;
        IF p_ways AND v_new <> '{}' THEN
            SELECT array_agg(w.here ORDER BY w.there), array_agg(w.id ORDER BY w.there) INTO v_parents, v_links
            FROM (
                SELECT DISTINCT ON (e.there) e.there, e.here, e.id
                FROM unnest(v_edges, v_heres, v_theres, v_weights) e(id, here, there, weight)
                WHERE EXISTS (SELECT FROM unnest(v_new) s(id) WHERE s.id = e.there)
                ORDER BY e.there, e.here, e.weight DESC NULLS LAST, e.id DESC
            ) w;
            parents := parents || v_parents;
            links := links || v_links;
        END IF;
        nodes := nodes || v_new;
        fragments := fragments || v_texts;
        depths := depths || array_fill(v_level, ARRAY[cardinality(v_new)]);
        edges := edges || v_edges;
        heres := heres || v_heres;
        theres := theres || v_theres;
        outs := outs || v_outs;
        types := types || v_types;
        weights := weights || v_weights;
        levels := levels || array_fill(v_level, ARRAY[cardinality(v_edges)]);
        EXIT WHEN overflow = 'node';
        IF v_full THEN
            overflow := 'edge';
            EXIT;
        END IF;
        IF cardinality(edges) > p_most
            AND (SELECT count(*) FROM (SELECT DISTINCT e.id FROM unnest(edges) e(id)) d) > p_most THEN
            overflow := 'edge';
            EXIT;
        END IF;
        EXIT WHEN v_front = '{}';
    END LOOP;
END
$$;
