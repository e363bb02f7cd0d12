-- Returns the ids of the facts about an entity, or with the filter's predicates, that match the context and the filter:
-- the latest 2,000, and where there are more also the 2,000 with the best terms. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION select_facts(
    p_context read_context, p_filter fact_filter, p_terms term_query, p_entity uuid)
RETURNS uuid[]
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    -- Dynamic, since the condition decides which index serves.
    v_all text := format(
        'SELECT f.fact_id, f.created_at, f.terms FROM graph_facts f '
        'CROSS JOIN LATERAL (SELECT fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, $1, $6)) '
        '    c(confidence) '
        'WHERE f.tenant_id = $1 AND f.project_id = $2 AND %s AND ($4 IS NULL OR f.predicate_id = ANY ($4)) '
        '  AND f.valid_until > CASE WHEN $6 IS NULL THEN $5 ELSE ''-infinity'' END AND ($7 IS NULL OR f.scope = $7) '
        '  AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at, '
        '                  $1, $5, $6) '
        '  AND c.confidence > 0 AND c.confidence >= $8 AND c.confidence * f.source_trust >= $9',
        CASE WHEN p_entity IS NULL THEN 'f.predicate_id = ANY ($4)' ELSE 'f.subject_entity_id = $3' END);
    v_facts uuid[];
    v_best uuid[] := '{}';
BEGIN
    EXECUTE format('SELECT ARRAY(SELECT f.fact_id FROM (%s) f ORDER BY f.created_at DESC, f.fact_id LIMIT 2000)', v_all)
    INTO v_facts
    USING p_context.tenant_id, p_context.project_id, p_entity, p_filter.relations, p_context.valid_at,
          p_context.known_at, p_context.scope, p_filter.min_confidence, p_filter.min_trust;
    IF cardinality(v_facts) = 2000 THEN
        -- Overruled facts are tested one by one in this order, until there are enough others.
        EXECUTE format(
            'SELECT ARRAY(SELECT b.fact_id FROM ('
            '    SELECT f.fact_id FROM (%s) f ORDER BY ('
            '        SELECT coalesce(sum(t.idf), 0) FROM unnest($10, $11) t(term, idf) '
            '        WHERE t.term = ANY (tsvector_to_array(f.terms))) DESC, f.created_at DESC, f.fact_id OFFSET 0) b '
            'WHERE $12 OR NOT is_overruled($1, b.fact_id, $5, $6, $8, $9) LIMIT 2000)', v_all)
        INTO v_best
        USING p_context.tenant_id, p_context.project_id, p_entity, p_filter.relations, p_context.valid_at,
              p_context.known_at, p_context.scope, p_filter.min_confidence, p_filter.min_trust, p_terms.terms,
              p_terms.idf, p_filter.include_contradicted;
    END IF;
    RETURN v_facts || v_best;
END
$$;
