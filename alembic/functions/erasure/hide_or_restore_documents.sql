-- Hides or restores documents: each has the strictest level of its chunks and of the entities that it names, its links
-- the stricter of document and note. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION hide_or_restore_documents(p_tenant text, p_documents uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
BEGIN
    UPDATE documents d SET suppression = l.level
    FROM (
        SELECT o.document_id,
               CASE WHEN bool_or(h.level = 1) THEN 1 WHEN bool_or(h.level = 2) THEN 2 ELSE 0 END::smallint AS level
        FROM documents o
        LEFT JOIN LATERAL (
            SELECT n.suppression AS level FROM document_notes x
            JOIN memory_notes n ON n.tenant_id = p_tenant AND n.note_id = x.note_id
            WHERE x.tenant_id = p_tenant AND x.document_id = o.document_id AND n.suppression > 0
            UNION ALL
            SELECT hidden_level(e.erased_scopes, e.held_scopes, o.scope) FROM document_entity_mentions m
            JOIN graph_entities e ON e.tenant_id = p_tenant AND e.entity_id = m.entity_id
            WHERE m.tenant_id = p_tenant AND m.document_id = o.document_id
        ) h ON true
        WHERE o.tenant_id = p_tenant AND o.document_id = ANY (p_documents)
        GROUP BY o.document_id
    ) l
    WHERE d.tenant_id = p_tenant AND d.document_id = l.document_id AND d.suppression <> l.level;
    UPDATE document_notes x SET suppression = stricter_level(d.suppression, n.suppression)
    FROM documents d, memory_notes n
    WHERE d.tenant_id = p_tenant AND d.document_id = ANY (p_documents)
      AND x.tenant_id = p_tenant AND x.document_id = d.document_id
      AND n.tenant_id = p_tenant AND n.note_id = x.note_id
      AND x.suppression <> stricter_level(d.suppression, n.suppression);
    UPDATE document_entity_mentions x SET suppression = d.suppression FROM documents d
    WHERE d.tenant_id = p_tenant AND d.document_id = ANY (p_documents)
      AND x.tenant_id = p_tenant AND x.document_id = d.document_id AND x.suppression <> d.suppression;
END
$$;
