-- Returns the SQL that joins a unit e with what it has to satisfy, ending in a WHERE clause; empty when there is
-- nothing. Parameters: $2 tenant, $6 valid_at, $7 known_at, $8 relations, $9 min_confidence, $10 min_trust, $11
-- contradicted too.
CREATE OR REPLACE FUNCTION unit_condition(p_kind text, p_known timestamptz)
RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE WHEN p_kind = 'fact' THEN
        'CROSS JOIN LATERAL ('
        '    SELECT fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, $2, $7) AS confidence,'
        '           f.source_trust FROM graph_facts f'
        '    WHERE f.tenant_id = $2 AND f.fact_id = e.owner_id'
        '      AND ($8::uuid[] IS NULL OR f.predicate_id = ANY ($8))'
        '      AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,'
        '                      $2, $6, $7) OFFSET 0) h '
        'WHERE h.confidence >= $9 AND h.confidence > 0 AND h.confidence * h.source_trust >= $10'
        ' AND ($11 OR NOT is_overruled($2, e.owner_id, $6, $7, $9, $10))'
    WHEN p_kind = 'note' AND p_known IS NOT NULL THEN
        'CROSS JOIN LATERAL ('
        '    SELECT FROM memory_notes n WHERE n.tenant_id = $2 AND n.note_id = e.owner_id AND n.created_at <= $7'
        '    OFFSET 0) h WHERE true'
    ELSE '' END
$$;
