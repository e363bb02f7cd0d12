-- Return all simple paths from the roots over the edges of a walk as JSON text, shorter ones first, then by ids, and
-- the pairs of neighbors on them. One path more than p_limit says that there are more; its last pair is not returned.
-- With p_phased the n-th step only uses edges of level n. Paths are extended in their order, and none beyond p_limit is
-- built.
CREATE OR REPLACE FUNCTION simple_paths(
    p_roots uuid[], p_from_ids uuid[], p_to_ids uuid[], p_levels int[], p_depth int, p_phased boolean, p_limit int,
    OUT paths text[], OUT from_ids uuid[], OUT to_ids uuid[])
LANGUAGE plpgsql IMMUTABLE
SET work_mem = 65536
AS $$
DECLARE
    v_neighbors jsonb;
    v_front text[];
    v_last text[];
    v_paths text[];
    v_ends text[];
    v_left int;
    v_next text;
BEGIN
    SELECT array_agg('"' || r.id || '"' ORDER BY r.id), array_agg(r.id::text ORDER BY r.id) INTO v_front, v_last
    FROM unnest(p_roots) r(id);
    from_ids := '{}';
    to_ids := '{}';
    paths := v_front[: p_limit + 1];
    FOR v_level IN 1 .. p_depth LOOP
        v_left := p_limit - cardinality(paths);
        EXIT WHEN v_left < 0;
        IF v_level = 1 OR p_phased THEN
            SELECT coalesce(jsonb_object_agg(n.from_id, n.to_ids), '{}') INTO v_neighbors
            FROM (SELECT a.from_id, jsonb_agg(a.to_id ORDER BY a.to_id) AS to_ids
                  FROM (SELECT DISTINCT e.from_id, e.to_id
                        FROM unnest(p_from_ids, p_to_ids, p_levels) e(from_id, to_id, level)
                        WHERE NOT p_phased OR e.level = v_level) a
                  GROUP BY a.from_id) n;
        END IF;
        v_paths := '{}';
        v_ends := '{}';
        <<level>>
        FOR v_place IN 1 .. coalesce(cardinality(v_front), 0) LOOP
            CONTINUE WHEN NOT v_neighbors ? v_last[v_place];
            FOR v_next IN SELECT t.id FROM jsonb_array_elements_text(v_neighbors -> v_last[v_place]) t(id) LOOP
                CONTINUE WHEN strpos(v_front[v_place], v_next) > 0;
                v_paths := v_paths || (v_front[v_place] || ',"' || v_next || '"');
                v_ends := v_ends || v_next;
                IF cardinality(v_paths) <= v_left THEN
                    from_ids := from_ids || v_last[v_place]::uuid;
                    to_ids := to_ids || v_next::uuid;
                ELSE
                    EXIT level;
                END IF;
            END LOOP;
        END LOOP;
        EXIT WHEN v_paths = '{}';
        v_front := v_paths;
        v_last := v_ends;
        paths := paths || v_paths;
    END LOOP;
END
$$;
