-- Returns the entities that a note mentions, the surest first, at most 100, as JSON: those of facts that the caller can
-- see and that cite the note, since mentions alone could reveal private facts of others. p_known: only what was
-- recorded by then; NULL: everything. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION note_mentions(p_tenant text, p_note uuid, p_known timestamptz)
RETURNS jsonb
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
                   'entity_id', x.entity_id, 'text', x.mention, 'confidence', x.confidence)
                   ORDER BY x.confidence DESC, x.entity_id), '[]')
        FROM (
            SELECT m.entity_id, m.mention, m.confidence FROM note_entity_mentions m
            WHERE m.tenant_id = p_tenant AND m.note_id = p_note AND (p_known IS NULL OR m.created_at <= p_known)
              AND EXISTS (
                  SELECT FROM graph_entities e WHERE e.tenant_id = p_tenant AND e.entity_id = m.entity_id)
              AND EXISTS (
                  SELECT FROM graph_fact_evidence v
                  JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_id = v.fact_id
                  WHERE v.tenant_id = p_tenant AND v.note_id = p_note
                    AND m.entity_id IN (f.subject_entity_id, f.object_entity_id)
                    AND (p_known IS NULL OR f.created_at <= p_known))
            ORDER BY m.confidence DESC, m.entity_id LIMIT 100
        ) x);
END
$$;
