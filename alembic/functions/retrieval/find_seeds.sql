-- Returns the entities from which a traversal starts, at most 20: the subjects of these facts that match the context
-- and the filter, the entities of the facts that cite these notes, and the entities of these cards; by the best rank of
-- any of them. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_seeds(
    p_context read_context, p_filter fact_filter, p_lexical uuid[], p_near uuid[], p_notes uuid[], p_cards uuid[])
RETURNS uuid[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN ARRAY(
        SELECT x.entity_id FROM (
            SELECT u.entity_id, min(u.rank) AS rank FROM (
                SELECT f.subject_entity_id AS entity_id, h.rank
                FROM (SELECT l.id, l.rank FROM unnest(p_lexical) WITH ORDINALITY l(id, rank)
                      UNION ALL
                      SELECT l.id, l.rank FROM unnest(p_near) WITH ORDINALITY l(id, rank)) h
                CROSS JOIN LATERAL (
                    SELECT f.subject_entity_id, f.source_trust,
                           fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, p_context.tenant_id,
                                           p_context.known_at) AS confidence
                    FROM graph_facts f
                    WHERE f.tenant_id = p_context.tenant_id AND f.fact_id = h.id
                      AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at,
                                      f.retracted_at, p_context.tenant_id, p_context.valid_at, p_context.known_at)
                    OFFSET 0) f
                WHERE f.confidence >= p_filter.min_confidence AND f.confidence > 0
                  AND f.confidence * f.source_trust >= p_filter.min_trust
                UNION ALL
                SELECT x.entity_id, l.rank
                FROM unnest(p_notes) WITH ORDINALITY l(id, rank)
                CROSS JOIN LATERAL (
                    SELECT f.subject_entity_id, f.object_entity_id FROM graph_fact_evidence v
                    CROSS JOIN LATERAL (
                        SELECT f.subject_entity_id, f.object_entity_id FROM graph_facts f
                        WHERE f.tenant_id = p_context.tenant_id AND f.fact_id = v.fact_id
                          AND (p_context.known_at IS NULL OR f.created_at <= p_context.known_at) OFFSET 0) f
                    WHERE v.tenant_id = p_context.tenant_id AND v.note_id = l.id OFFSET 0) f
                CROSS JOIN LATERAL (VALUES (f.subject_entity_id), (f.object_entity_id)) x(entity_id)
                WHERE x.entity_id IS NOT NULL
                UNION ALL
                SELECT c.entity_id, l.rank
                FROM unnest(p_cards) WITH ORDINALITY l(id, rank)
                CROSS JOIN LATERAL (
                    SELECT c.entity_id FROM memory_cards c
                    WHERE c.tenant_id = p_context.tenant_id AND c.card_id = l.id OFFSET 0) c
            ) u GROUP BY u.entity_id
        ) x ORDER BY x.rank, x.entity_id LIMIT 20);
END
$$;
