-- Who is near an entity: one row with 0 hops for the entity itself, which also tells how many were found, whether a
-- bound left some out and which time a next page has to know; then one page of them, nearest first, each with the facts
-- of its path. No row: there is no such entity; several with 0 hops: the name fits several, and nothing is walked.
-- Labels are names or ids of predicates as resolve_predicates takes them, prefixes begin their names; both NULL: any.
-- p_pinned is the time that an earlier page knew. Runs with the rights of its caller, in a scope that is set.
CREATE OR REPLACE FUNCTION find_neighbors(
    p_tenant text, p_project text, p_entity uuid, p_name text, p_scope text, p_depth int, p_direction text,
    p_labels json, p_prefixes text[], p_confidence double precision, p_trust double precision,
    p_valid timestamptz, p_as_of timestamptz, p_pinned timestamptz, p_fans int[], p_cap int,
    p_after_hops int, p_after uuid, p_limit int)
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
    -- Read after the snapshot was taken: whatever can be seen was created before.
    v_clock timestamptz := clock_timestamp();
    v_known timestamptz := coalesce(p_pinned, p_as_of);
    v_valid timestamptz := coalesce(p_valid, p_as_of, p_pinned, v_clock);
    v_roots uuid[];
    v_relations uuid[];
BEGIN
    IF p_as_of IS NOT NULL THEN
        PERFORM check_as_of(p_tenant, p_project, p_as_of);
    END IF;
    IF p_entity IS NOT NULL THEN
        v_roots := ARRAY(
            SELECT coalesce(e.merged_into, e.entity_id) FROM graph_entities e
            WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.entity_id = p_entity);
    ELSE
        v_roots := ARRAY(
            SELECT coalesce(e.merged_into, e.entity_id) FROM graph_entities e
            WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.canonical_norm = p_name);
        IF v_roots = '{}' THEN
            v_roots := ARRAY(
                SELECT DISTINCT a.entity_id FROM graph_entity_aliases a
                WHERE a.tenant_id = p_tenant AND a.project_id = p_project AND a.alias_norm = p_name);
        END IF;
    END IF;
    -- What is hidden, or was not known then, is not meant.
    v_roots := ARRAY(
        SELECT e.entity_id FROM unnest(v_roots) u(id)
        CROSS JOIN LATERAL (
            SELECT x.entity_id FROM graph_entities x
            WHERE x.tenant_id = p_tenant AND x.entity_id = u.id AND (p_as_of IS NULL OR x.created_at <= p_as_of)
            OFFSET 0) e);
    IF p_labels IS NOT NULL OR p_prefixes IS NOT NULL THEN
        v_relations := ARRAY(
            SELECT r.predicate_id FROM resolve_predicates(p_tenant, p_project, p_labels) r
            WHERE r.predicate_id IS NOT NULL
            UNION
            SELECT p.predicate_id FROM json_to_recordset(p_labels) AS n(norm text)
            JOIN graph_predicates p ON p.tenant_id = p_tenant AND p.canonical_norm = n.norm
                AND p.scope_key IN (p_tenant || ':' || p_project, p_tenant || ':*', '__global__')
            UNION
            SELECT p.predicate_id FROM unnest(p_prefixes) n(prefix)
            JOIN graph_predicates p ON p.tenant_id = p_tenant
                AND p.canonical_norm >= n.prefix AND p.canonical_norm < n.prefix || U&'\+10FFFF'
                AND p.scope_key IN (p_tenant || ':' || p_project, p_tenant || ':*', '__global__'));
    END IF;
    RETURN QUERY
    WITH walked AS MATERIALIZED (
        SELECT w.* FROM walk_edges(
            p_tenant, p_project, p_scope, v_roots, p_depth, p_direction, v_relations, p_confidence, p_trust, 0, v_valid,
            v_known, p_fans, p_cap) w
        WHERE cardinality(v_roots) = 1
    )
    SELECT 0, e.entity_id, e.canonical, e.kind, e.suppression, NULL::double precision, NULL::double precision,
           NULL::uuid[], NULL::text[], NULL::uuid[], NULL::uuid[], NULL::uuid[],
           s.total, s.truncated, least(coalesce(p_pinned, p_as_of, v_clock), v_clock)
    FROM (SELECT count(*) AS total, coalesce(bool_or(w.truncated), false) AS truncated FROM walked w) s
    CROSS JOIN unnest(v_roots) u(id)
    CROSS JOIN LATERAL (
        SELECT x.* FROM graph_entities x WHERE x.tenant_id = p_tenant AND x.entity_id = u.id OFFSET 0) e
    UNION ALL
    SELECT n.hops, e.entity_id, e.canonical, e.kind, e.suppression, n.confidence,
           p.trusts[n.hops], n.path, p.relations, p.subjects, p.objects, p.held, NULL, NULL, NULL
    FROM (
        SELECT w.* FROM walked w
        WHERE p_after IS NULL OR (w.hops, w.entity_id) > (p_after_hops, p_after)
        ORDER BY w.hops, w.entity_id LIMIT p_limit
    ) n
    CROSS JOIN LATERAL (
        SELECT x.* FROM graph_entities x WHERE x.tenant_id = p_tenant AND x.entity_id = n.entity_id OFFSET 0) e
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
                WHERE r.tenant_id = p_tenant AND r.predicate_id = x.predicate_id OFFSET 0) r
            WHERE x.tenant_id = p_tenant AND x.edge_id = f.edge_id OFFSET 0) x
    ) p;
END
$$;
