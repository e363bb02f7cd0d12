-- Returns the current edges from and to one entity within one scope, numbered by confidence, then the newest first, at
-- most p_limit. Plain SQL without settings, so that it is inlined; each half has its own limit, so that its index gives
-- the order and the cost of a hub is bounded.
CREATE OR REPLACE FUNCTION edges_now(
    p_tenant text, p_project text, p_scope text, p_entity uuid, p_out boolean, p_in boolean, p_relations uuid[],
    p_confidence double precision, p_trust double precision, p_effective double precision, p_valid timestamptz,
    p_limit bigint)
RETURNS TABLE (entity_id uuid, edge_id uuid, confidence double precision, pick bigint)
LANGUAGE sql STABLE
AS $$
    SELECT k.entity_id, k.edge_id, k.confidence, row_number() OVER (ORDER BY k.confidence DESC, k.edge_id DESC)
    FROM (
        SELECT u.entity_id, u.edge_id, u.confidence
        FROM (
            (SELECT x.object_entity_id AS entity_id, x.edge_id, x.confidence FROM entity_edges x
             WHERE p_out AND x.tenant_id = p_tenant AND x.project_id = p_project AND x.subject_entity_id = p_entity
               AND x.scope = p_scope AND x.confidence >= p_confidence AND x.source_trust >= p_trust
               AND x.confidence * x.source_trust >= p_effective
               AND x.retracted_at IS NULL AND x.valid_from <= p_valid AND x.valid_until > p_valid
               AND (p_relations IS NULL OR x.predicate_id = ANY (p_relations)) AND x.object_entity_id <> p_entity
             ORDER BY x.confidence DESC, x.edge_id DESC LIMIT p_limit)
            UNION ALL
            (SELECT x.subject_entity_id, x.edge_id, x.confidence FROM entity_edges x
             WHERE p_in AND x.tenant_id = p_tenant AND x.project_id = p_project AND x.object_entity_id = p_entity
               AND x.scope = p_scope AND x.confidence >= p_confidence AND x.source_trust >= p_trust
               AND x.confidence * x.source_trust >= p_effective
               AND x.retracted_at IS NULL AND x.valid_from <= p_valid AND x.valid_until > p_valid
               AND (p_relations IS NULL OR x.predicate_id = ANY (p_relations)) AND x.subject_entity_id <> p_entity
             ORDER BY x.confidence DESC, x.edge_id DESC LIMIT p_limit)
        ) u
        ORDER BY u.confidence DESC, u.edge_id DESC LIMIT p_limit
    ) k
$$;
