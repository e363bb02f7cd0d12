-- Returns the facts about an entity, or by some predicates, that stand at the two times and have enough confidence and
-- trust: the latest 2,000; where there are more, also the 2,000 that match a query's terms best, without overruled ones
-- unless p_contradicted. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION facts_of(
    p_tenant text, p_project text, p_entity uuid, p_relations uuid[], p_terms text[], p_idf double precision[],
    p_valid timestamptz, p_known timestamptz, p_scope text, p_confidence double precision, p_trust double precision,
    p_contradicted boolean)
RETURNS uuid[]
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    -- Dynamic, because the best index depends on which argument is given.
    v_all text := format(
        'SELECT f.fact_id, f.created_at, f.terms FROM graph_facts f '
        'CROSS JOIN LATERAL (SELECT fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, $1, $6)) '
        '    c(sure) '
        'WHERE f.tenant_id = $1 AND f.project_id = $2 AND %s AND ($4 IS NULL OR f.predicate_id = ANY ($4)) '
        '  AND f.valid_until > CASE WHEN $6 IS NULL THEN $5 ELSE ''-infinity'' END AND ($7 IS NULL OR f.scope = $7) '
        '  AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at, '
        '                  $1, $5, $6) '
        '  AND c.sure > 0 AND c.sure >= $8 AND c.sure * f.source_trust >= $9',
        CASE WHEN p_entity IS NULL THEN 'f.predicate_id = ANY ($4)' ELSE 'f.subject_entity_id = $3' END);
    v_facts uuid[];
    v_best uuid[] := '{}';
BEGIN
    EXECUTE format('SELECT ARRAY(SELECT f.fact_id FROM (%s) f ORDER BY f.created_at DESC, f.fact_id LIMIT 2000)', v_all)
    INTO v_facts USING p_tenant, p_project, p_entity, p_relations, p_valid, p_known, p_scope, p_confidence, p_trust;
    IF cardinality(v_facts) = 2000 THEN
        -- is_overruled is expensive, so it is called only until there are enough.
        EXECUTE format(
            'SELECT ARRAY(SELECT b.fact_id FROM ('
            '    SELECT f.fact_id FROM (%s) f ORDER BY ('
            '        SELECT coalesce(sum(t.idf), 0) FROM unnest($10, $11) t(term, idf) '
            '        WHERE t.term = ANY (tsvector_to_array(f.terms))) DESC, f.created_at DESC, f.fact_id OFFSET 0) b '
            'WHERE $12 OR NOT is_overruled($1, b.fact_id, $5, $6, $8, $9) LIMIT 2000)', v_all)
        INTO v_best USING p_tenant, p_project, p_entity, p_relations, p_valid, p_known, p_scope, p_confidence, p_trust,
                          p_terms, p_idf, p_contradicted;
    END IF;
    RETURN v_facts || v_best;
END
$$;
