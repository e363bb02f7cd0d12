-- The same as edges_now for what was known at p_known: ends, confidences and retractions as they were recorded then.
-- Which edges were surest then no index tells, so all of the entity's edges are looked at; only of what changed since
-- the history is looked up.
CREATE OR REPLACE FUNCTION edges_then(
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
                   coalesce(
                       CASE WHEN u.weighed_at > p_known THEN (
                           SELECT w.previous_confidence FROM fact_confidences w
                           WHERE w.tenant_id = p_tenant AND w.fact_id = u.edge_id AND w.recorded_at > p_known
                           ORDER BY w.recorded_at LIMIT 1) END,
                       CASE WHEN u.retracted_at > p_known THEN (
                           SELECT r.confidence_before FROM fact_retractions r
                           WHERE r.tenant_id = p_tenant AND r.fact_id = u.edge_id
                           ORDER BY r.retracted_at LIMIT 1) END,
                       u.confidence) AS confidence,
                   CASE WHEN u.closed_at > p_known THEN (
                       SELECT coalesce(c.previous_valid_to, 'infinity') FROM fact_closings c
                       WHERE c.tenant_id = p_tenant AND c.fact_id = u.edge_id AND c.recorded_at > p_known
                       ORDER BY c.recorded_at LIMIT 1) ELSE u.valid_until END AS ends
            FROM (
                SELECT x.object_entity_id AS entity_id, x.edge_id, x.confidence, x.source_trust, x.valid_until,
                       x.closed_at, x.retracted_at, x.weighed_at
                FROM entity_edges x
                WHERE p_out AND x.tenant_id = p_tenant AND x.project_id = p_project AND x.subject_entity_id = p_entity
                  AND x.scope = p_scope AND x.source_trust >= p_trust AND x.created_at <= p_known
                  AND (x.retracted_at IS NULL OR x.retracted_at > p_known)
                  AND x.valid_from <= p_valid AND (x.valid_until > p_valid OR x.closed_at > p_known)
                  AND (p_relations IS NULL OR x.predicate_id = ANY (p_relations)) AND x.object_entity_id <> p_entity
                UNION ALL
                SELECT x.subject_entity_id, x.edge_id, x.confidence, x.source_trust, x.valid_until, x.closed_at,
                       x.retracted_at, x.weighed_at
                FROM entity_edges x
                WHERE p_in AND x.tenant_id = p_tenant AND x.project_id = p_project AND x.object_entity_id = p_entity
                  AND x.scope = p_scope AND x.source_trust >= p_trust AND x.created_at <= p_known
                  AND (x.retracted_at IS NULL OR x.retracted_at > p_known)
                  AND x.valid_from <= p_valid AND (x.valid_until > p_valid OR x.closed_at > p_known)
                  AND (p_relations IS NULL OR x.predicate_id = ANY (p_relations)) AND x.subject_entity_id <> p_entity
            ) u OFFSET 0
        ) t
        WHERE t.confidence >= p_confidence AND t.confidence * t.source_trust >= p_effective AND t.ends > p_valid
        ORDER BY t.confidence DESC, t.edge_id DESC LIMIT p_limit
    ) k
$$;
