-- Returns the same as edges_now for what was recorded at p_known: validity, confidence and retractions at that time. No
-- index is ordered by past confidences, so that all edges of the entity are read; history is only read for those
-- changed since.
CREATE OR REPLACE FUNCTION edges_as_of(
    p_tenant text, p_project text, p_scope text, p_entity uuid, p_out boolean, p_in boolean, p_relations uuid[],
    p_confidence double precision, p_trust double precision, p_effective double precision, p_valid timestamptz,
    p_known timestamptz, p_limit bigint)
RETURNS TABLE (entity_id uuid, edge_id uuid, confidence double precision, pick bigint)
LANGUAGE sql STABLE
AS $$
    SELECT k.entity_id, k.edge_id, k.confidence, row_number() OVER (ORDER BY k.confidence DESC, k.edge_id DESC)
    FROM (
        SELECT t.entity_id, t.edge_id, t.confidence
        FROM (
            SELECT u.entity_id, u.edge_id, u.source_trust,
                   past_confidence(u.edge_id, u.confidence, u.weighed_at, u.retracted_at, p_tenant, p_known)
                       AS confidence,
                   end_known_at(u.edge_id, u.valid_until, u.closed_at, p_tenant, p_known) AS ends
            FROM (
                SELECT x.object_entity_id AS entity_id, x.edge_id, x.confidence, x.source_trust, x.valid_until,
                       x.closed_at, x.retracted_at, x.weighed_at
                FROM entity_edges x
                WHERE p_out AND x.tenant_id = p_tenant AND x.project_id = p_project AND x.subject_entity_id = p_entity
                  AND x.scope = p_scope AND x.source_trust >= p_trust
                  AND edge_stands(x.valid_from, x.valid_until, x.created_at, x.closed_at, x.retracted_at, p_valid,
                                  p_known)
                  AND (p_relations IS NULL OR x.predicate_id = ANY (p_relations)) AND x.object_entity_id <> p_entity
                UNION ALL
                SELECT x.subject_entity_id, x.edge_id, x.confidence, x.source_trust, x.valid_until, x.closed_at,
                       x.retracted_at, x.weighed_at
                FROM entity_edges x
                WHERE p_in AND x.tenant_id = p_tenant AND x.project_id = p_project AND x.object_entity_id = p_entity
                  AND x.scope = p_scope AND x.source_trust >= p_trust
                  AND edge_stands(x.valid_from, x.valid_until, x.created_at, x.closed_at, x.retracted_at, p_valid,
                                  p_known)
                  AND (p_relations IS NULL OR x.predicate_id = ANY (p_relations)) AND x.subject_entity_id <> p_entity
            ) u OFFSET 0
        ) t
        WHERE t.confidence >= p_confidence AND t.confidence * t.source_trust >= p_effective AND t.ends > p_valid
        ORDER BY t.confidence DESC, t.edge_id DESC LIMIT p_limit
    ) k
$$;
