-- Returns an entity and one page of its neighbors: the entity itself first, with hops 0, how many neighbors there are
-- in all and whether a limit applied; several such rows when the name is ambiguous, none when it is unknown. p_pinned
-- is the time the first page was read at. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_neighbors(
    p_context read_context, p_traversal traversal, p_entity uuid, p_name text, p_labels json, p_prefixes text[],
    p_pinned timestamptz, p_after_hops int, p_after uuid, p_limit int)
RETURNS TABLE (
    hops int, entity_id uuid, canonical text, kind text, suppression smallint, confidence double precision,
    source_trust double precision, facts uuid[], relations text[], subjects uuid[], objects uuid[], held uuid[],
    total bigint, truncated boolean, known_at timestamptz)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    -- Read after the snapshot was taken, so that everything visible was created before.
    v_clock timestamptz := clock_timestamp();
    v_tenant text := p_context.tenant_id;
    v_project text := p_context.project_id;
    v_pinned read_context;
    v_roots uuid[];
    v_relations uuid[];
BEGIN
    IF p_context.known_at IS NOT NULL THEN
        PERFORM check_as_of(v_tenant, v_project, p_context.known_at);
    END IF;
    v_roots := find_start_entities(p_context, p_entity, p_name);
    IF p_labels IS NOT NULL OR p_prefixes IS NOT NULL THEN
        v_relations := find_relations(v_tenant, v_project, p_labels, p_prefixes);
    END IF;
    v_pinned := p_context;
    v_pinned.known_at := coalesce(p_pinned, p_context.known_at);
    v_pinned.valid_at := coalesce(p_context.valid_at, p_context.known_at, p_pinned, v_clock);
    RETURN QUERY
    WITH reached AS MATERIALIZED (
        SELECT w.* FROM traverse_edges(v_pinned, p_traversal, v_roots, v_relations, 0) w
        WHERE cardinality(v_roots) = 1
    )
    SELECT 0, e.entity_id, e.canonical, e.kind, e.suppression, NULL::double precision, NULL::double precision,
           NULL::uuid[], NULL::text[], NULL::uuid[], NULL::uuid[], NULL::uuid[],
           s.total, s.truncated, least(coalesce(v_pinned.known_at, v_clock), v_clock)
    FROM (SELECT count(*) AS total, coalesce(bool_or(w.truncated), false) AS truncated FROM reached w) s
    CROSS JOIN unnest(v_roots) u(id)
    CROSS JOIN LATERAL (
        SELECT x.* FROM graph_entities x WHERE x.tenant_id = v_tenant AND x.entity_id = u.id OFFSET 0) e
    UNION ALL
    SELECT n.hops, e.entity_id, e.canonical, e.kind, e.suppression, n.confidence,
           p.trusts[n.hops], n.path, p.relations, p.subjects, p.objects, p.held, NULL, NULL, NULL
    FROM (
        SELECT w.* FROM reached w
        WHERE p_after IS NULL OR (w.hops, w.entity_id) > (p_after_hops, p_after)
        ORDER BY w.hops, w.entity_id LIMIT p_limit
    ) n
    CROSS JOIN LATERAL (
        SELECT x.* FROM graph_entities x WHERE x.tenant_id = v_tenant AND x.entity_id = n.entity_id OFFSET 0) e
    CROSS JOIN LATERAL (
        SELECT array_agg(x.subject_entity_id ORDER BY f.place) AS subjects,
               array_agg(x.object_entity_id ORDER BY f.place) AS objects,
               array_agg(x.canonical ORDER BY f.place) AS relations,
               array_agg(x.source_trust ORDER BY f.place) AS trusts,
               array_agg(x.edge_id) FILTER (WHERE x.suppression > 0) AS held
        FROM unnest(n.path) WITH ORDINALITY f(edge_id, place)
        CROSS JOIN LATERAL (
            SELECT x.*, r.canonical FROM entity_edges x
            CROSS JOIN LATERAL (
                SELECT r.canonical FROM graph_predicates r
                WHERE r.tenant_id = v_tenant AND r.predicate_id = x.predicate_id OFFSET 0) r
            WHERE x.tenant_id = v_tenant AND x.edge_id = f.edge_id OFFSET 0) x
    ) p;
END
$$;
