-- All simple paths from the roots over what a walk has crossed, as JSON text, and the pairs of neighbours on them: the
-- shorter first, then by ids; one path more than p_limit says that there are more, and its pairs don't count. p_phased:
-- the n-th step goes over what was crossed at level n alone.
CREATE OR REPLACE FUNCTION list_paths(
    p_roots uuid[], p_heres uuid[], p_theres uuid[], p_levels int[], p_depth int, p_phased boolean, p_limit int,
    OUT paths text[], OUT heres uuid[], OUT theres uuid[])
LANGUAGE plpgsql IMMUTABLE
SET enable_nestloop = off
SET enable_mergejoin = off
SET work_mem = 65536
AS $$
DECLARE
    v_front text[];
    v_last uuid[];
    v_before uuid[];
    v_room int;
BEGIN
    SELECT array_agg('"' || r.id || '"' ORDER BY r.id), array_agg(r.id ORDER BY r.id) INTO v_front, v_last
    FROM unnest(p_roots) r(id);
    heres := '{}';
    theres := '{}';
    paths := v_front[: p_limit + 1];
    FOR v_level IN 1 .. p_depth LOOP
        v_room := p_limit - cardinality(paths);
        EXIT WHEN v_room < 0;
        SELECT array_agg(n.path), array_agg(n.there), array_agg(n.here) INTO v_front, v_last, v_before
        FROM (
            SELECT f.path || ',"' || a.there || '"' AS path, a.there, a.here
            FROM unnest(v_front, v_last) f(path, last)
            JOIN (
                SELECT DISTINCT e.here, e.there FROM unnest(p_heres, p_theres, p_levels) e(here, there, level)
                WHERE NOT p_phased OR e.level = v_level
            ) a ON a.here = f.last
            WHERE strpos(f.path, a.there::text) = 0
            ORDER BY (f.path || ',"' || a.there || '"') COLLATE "C" LIMIT v_room + 1
        ) n;
        EXIT WHEN v_front IS NULL;
        paths := paths || v_front;
        heres := heres || v_before[:v_room];
        theres := theres || v_last[:v_room];
    END LOOP;
END
$$;
