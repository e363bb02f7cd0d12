-- All simple paths from the roots over what a walk has crossed, as JSON text, and the pairs of neighbours on them: the
-- shorter first, then by ids; one path more than p_limit says that there are more, and its pairs don't count. p_phased:
-- the n-th step goes over what was crossed at level n alone. Goes on from one path after the other, in their order, and
-- stops at the bound: what lies beyond it is not even made.
CREATE OR REPLACE FUNCTION list_paths(
    p_roots uuid[], p_heres uuid[], p_theres uuid[], p_levels int[], p_depth int, p_phased boolean, p_limit int,
    OUT paths text[], OUT heres uuid[], OUT theres uuid[])
LANGUAGE plpgsql IMMUTABLE
SET work_mem = 65536
AS $$
DECLARE
    v_near jsonb;
    v_front text[];
    v_last text[];
    v_paths text[];
    v_ends text[];
    v_room int;
    v_there text;
BEGIN
    SELECT array_agg('"' || r.id || '"' ORDER BY r.id), array_agg(r.id::text ORDER BY r.id) INTO v_front, v_last
    FROM unnest(p_roots) r(id);
    heres := '{}';
    theres := '{}';
    paths := v_front[: p_limit + 1];
    FOR v_level IN 1 .. p_depth LOOP
        v_room := p_limit - cardinality(paths);
        EXIT WHEN v_room < 0;
        IF v_level = 1 OR p_phased THEN
            SELECT coalesce(jsonb_object_agg(n.here, n.theres), '{}') INTO v_near
            FROM (SELECT a.here, jsonb_agg(a.there ORDER BY a.there) AS theres
                  FROM (SELECT DISTINCT e.here, e.there FROM unnest(p_heres, p_theres, p_levels) e(here, there, level)
                        WHERE NOT p_phased OR e.level = v_level) a
                  GROUP BY a.here) n;
        END IF;
        v_paths := '{}';
        v_ends := '{}';
        <<level>>
        FOR v_place IN 1 .. coalesce(cardinality(v_front), 0) LOOP
            CONTINUE WHEN NOT v_near ? v_last[v_place];
            FOR v_there IN SELECT t.id FROM jsonb_array_elements_text(v_near -> v_last[v_place]) t(id) LOOP
                CONTINUE WHEN strpos(v_front[v_place], v_there) > 0;
                v_paths := v_paths || (v_front[v_place] || ',"' || v_there || '"');
                v_ends := v_ends || v_there;
                IF cardinality(v_paths) <= v_room THEN
                    heres := heres || v_last[v_place]::uuid;
                    theres := theres || v_there::uuid;
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
