-- Returns the entities reached from the seeds within the context's scope, level by level: the hops, the last edge and
-- its confidence, and the path of edges. An entity is reached once, by the fewest hops; among those by the edge of
-- highest confidence, then from the lowest entity id. Edges have to match the traversal, p_min_trust (confidence times
-- trust) and p_relations (NULL: every predicate). Limits keep the edges of highest confidence; `truncated` says on
-- every row whether one applied. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION traverse_edges(
    p_context read_context, p_traversal traversal, p_seeds uuid[], p_relations uuid[], p_min_trust double precision)
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
    -- In variables of their own: fields of a record are slower to read for every edge.
    v_tenant text := p_context.tenant_id;
    v_project text := p_context.project_id;
    v_scope text := p_context.scope;
    v_valid timestamptz := p_context.valid_at;
    v_confidence double precision := p_traversal.min_confidence;
    v_trust double precision := p_traversal.min_source_trust;
    v_fans int[] := p_traversal.fans;
    v_out boolean := p_traversal.direction <> 'in';
    v_in boolean := p_traversal.direction <> 'out';
    v_front uuid[] := p_seeds;
    v_offset int := 0;
    v_left int;
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
    FOR v_level IN 1 .. p_traversal.depth LOOP
        v_left := p_traversal.cap - cardinality(v_found);
        IF v_left = 0 THEN
            v_truncated := true;
            EXIT;
        END IF;
        -- One edge more than the limit is read, which stands for those left out and leads nowhere. Joins other than the
        -- lookups of edges are hash joins, since nested loops would be quadratic.
        -- Not one query over both times: to skip half of it for every entity costs a tenth of the whole.
        IF p_context.known_at IS NULL THEN
            SELECT array_agg(n.entity_id) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.parent) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.edge_id) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.confidence) FILTER (WHERE n.entity_id IS NOT NULL),
                   bool_or(n.entity_id IS NULL)
            INTO v_new, v_new_parents, v_new_edges, v_new_confidences, v_hubs
            FROM (
                SELECT d.entity_id, d.parent, d.edge_id, d.confidence FROM (
                    SELECT DISTINCT ON (1) CASE WHEN x.pick <= v_fans[v_level] THEN x.entity_id END AS entity_id,
                           v_offset + f.place::int AS parent, x.edge_id, x.confidence
                    FROM unnest(v_front) WITH ORDINALITY f(entity_id, place)
                    CROSS JOIN LATERAL edges_now(
                        v_tenant, v_project, v_scope, f.entity_id, v_out, v_in, p_relations, v_confidence, v_trust,
                        p_min_trust, v_valid, v_fans[v_level] + 1) x
                    ORDER BY 1, x.confidence DESC, f.entity_id, x.edge_id DESC
                ) d
                WHERE NOT EXISTS (SELECT FROM unnest(p_seeds || v_found) s(entity_id) WHERE s.entity_id = d.entity_id)
                ORDER BY d.entity_id IS NOT NULL, d.confidence DESC, d.entity_id LIMIT v_left + 2
            ) n;
        ELSE
            SELECT n.* INTO v_new, v_new_parents, v_new_edges, v_new_confidences, v_hubs
            FROM traverse_level_as_of(
                p_context, p_traversal, v_level, v_front, v_offset, p_seeds || v_found, p_relations, p_min_trust,
                v_left + 2) n;
        END IF;
        v_truncated := v_truncated OR coalesce(v_hubs, false) OR coalesce(cardinality(v_new), 0) > v_left;
        EXIT WHEN v_new IS NULL;
        v_front := v_new[:v_left];
        v_offset := cardinality(v_found);
        v_found := v_found || v_front;
        v_hops := v_hops || array_fill(v_level, ARRAY[cardinality(v_front)]);
        v_parents := v_parents || v_new_parents[:v_left];
        v_edges := v_edges || v_new_edges[:v_left];
        v_confidences := v_confidences || v_new_confidences[:v_left];
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
