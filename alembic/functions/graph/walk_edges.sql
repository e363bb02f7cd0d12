-- Walks the graph of facts from some entities, level by level, within one scope: who is reached in how many hops, over
-- which edge, and by which path of edges. An entity is reached once, by the fewest hops; among those by the surest edge,
-- then from the lowest entity id. Edges that are too unsure, not trusted, not valid or of another relation are never
-- walked; too unsure is what p_confidence and p_effective (with the trust in the source) say. p_known NULL walks the present, else what was known then; p_relations NULL takes every relation.
-- p_fans says for each level how many edges of one entity are followed, p_cap how many entities are reached in all; both
-- keep the surest, and truncated says on every row that one of them left something out. Runs with the rights of its
-- caller.
CREATE OR REPLACE FUNCTION walk_edges(
    p_tenant text, p_project text, p_scope text, p_seeds uuid[], p_depth int, p_direction text, p_relations uuid[],
    p_confidence double precision, p_trust double precision, p_effective double precision, p_valid timestamptz,
    p_known timestamptz, p_fans int[], p_cap int)
RETURNS TABLE (
    entity_id uuid, hops int, edge_id uuid, confidence double precision, path uuid[], truncated boolean)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_nestloop = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_out boolean := p_direction <> 'in';
    v_in boolean := p_direction <> 'out';
    v_front uuid[] := p_seeds;
    v_offset int := 0;
    v_room int;
    v_new uuid[];
    v_new_parents int[];
    v_new_edges uuid[];
    v_new_confidences double precision[];
    v_hubs boolean;
    v_found uuid[] := '{}';
    v_hops int[] := '{}';
    v_parents int[] := '{}';
    v_edges uuid[] := '{}';
    v_confidences double precision[] := '{}';
    v_truncated boolean := false;
BEGIN
    FOR v_level IN 1 .. p_depth LOOP
        v_room := p_cap - cardinality(v_found);
        IF v_room = 0 THEN
            v_truncated := true;
            EXIT;
        END IF;
        -- One edge more than may be followed is asked for, and stands for all that are left out: it leads nowhere.
        -- Joins other than the lookups of edges go by hash: those by nested loops would grow with the square.
        IF p_known IS NULL THEN
            SELECT array_agg(n.entity_id) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.parent) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.edge_id) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.confidence) FILTER (WHERE n.entity_id IS NOT NULL),
                   bool_or(n.entity_id IS NULL)
            INTO v_new, v_new_parents, v_new_edges, v_new_confidences, v_hubs
            FROM (
                SELECT d.entity_id, d.parent, d.edge_id, d.confidence FROM (
                    SELECT DISTINCT ON (1) CASE WHEN x.pick <= p_fans[v_level] THEN x.entity_id END AS entity_id,
                           v_offset + f.place::int AS parent, x.edge_id, x.confidence
                    FROM unnest(v_front) WITH ORDINALITY f(entity_id, place)
                    CROSS JOIN LATERAL edges_now(
                        p_tenant, p_project, p_scope, f.entity_id, v_out, v_in, p_relations, p_confidence, p_trust,
                        p_effective, p_valid, p_fans[v_level] + 1) x
                    ORDER BY 1, x.confidence DESC, f.entity_id, x.edge_id DESC
                ) d
                WHERE NOT EXISTS (SELECT FROM unnest(p_seeds || v_found) s(entity_id) WHERE s.entity_id = d.entity_id)
                ORDER BY d.entity_id IS NOT NULL, d.confidence DESC, d.entity_id LIMIT v_room + 2
            ) n;
        ELSE
            SELECT array_agg(n.entity_id) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.parent) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.edge_id) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.confidence) FILTER (WHERE n.entity_id IS NOT NULL),
                   bool_or(n.entity_id IS NULL)
            INTO v_new, v_new_parents, v_new_edges, v_new_confidences, v_hubs
            FROM (
                SELECT d.entity_id, d.parent, d.edge_id, d.confidence FROM (
                    SELECT DISTINCT ON (1) CASE WHEN x.pick <= p_fans[v_level] THEN x.entity_id END AS entity_id,
                           v_offset + f.place::int AS parent, x.edge_id, x.confidence
                    FROM unnest(v_front) WITH ORDINALITY f(entity_id, place)
                    CROSS JOIN LATERAL edges_then(
                        p_tenant, p_project, p_scope, f.entity_id, v_out, v_in, p_relations, p_confidence, p_trust,
                        p_effective, p_valid, p_known, p_fans[v_level] + 1) x
                    ORDER BY 1, x.confidence DESC, f.entity_id, x.edge_id DESC
                ) d
                WHERE NOT EXISTS (SELECT FROM unnest(p_seeds || v_found) s(entity_id) WHERE s.entity_id = d.entity_id)
                ORDER BY d.entity_id IS NOT NULL, d.confidence DESC, d.entity_id LIMIT v_room + 2
            ) n;
        END IF;
        v_truncated := v_truncated OR coalesce(v_hubs, false) OR coalesce(cardinality(v_new), 0) > v_room;
        EXIT WHEN v_new IS NULL;
        v_front := v_new[:v_room];
        v_offset := cardinality(v_found);
        v_found := v_found || v_front;
        v_hops := v_hops || array_fill(v_level, ARRAY[cardinality(v_front)]);
        v_parents := v_parents || v_new_parents[:v_room];
        v_edges := v_edges || v_new_edges[:v_room];
        v_confidences := v_confidences || v_new_confidences[:v_room];
    END LOOP;
    RETURN QUERY
    SELECT u.entity_id, u.hops, u.edge_id, u.confidence,
           CASE u.hops WHEN 1 THEN ARRAY[u.edge_id]
                       WHEN 2 THEN ARRAY[v_edges[u.parent], u.edge_id]
                       ELSE ARRAY[v_edges[v_parents[u.parent]], v_edges[u.parent], u.edge_id] END,
           v_truncated
    FROM unnest(v_found, v_hops, v_edges, v_confidences, v_parents) u(entity_id, hops, edge_id, confidence, parent);
END
$$;
