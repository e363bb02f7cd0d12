-- Returns a legal hold that forbids to erase an entity in these scopes (NULL: all), or NULL: one on the entity itself,
-- or on another entity of a fact or note that would be erased, or of a fact whose evidence would.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_hold(
    p_tenant text, p_project text, p_entity uuid, p_scopes text[], p_facts uuid[], p_notes uuid[])
RETURNS uuid
LANGUAGE sql STABLE
AS $$
    SELECT t.tombstone_id FROM tombstones t
    WHERE t.tenant_id = p_tenant AND t.project_id = p_project AND t.legal_hold
      AND NOT EXISTS (SELECT FROM tombstone_revocations r
                      WHERE r.tenant_id = p_tenant AND r.tombstone_id = t.tombstone_id)
      AND ((t.entity_id = p_entity AND (t.scopes IS NULL OR p_scopes IS NULL OR t.scopes && p_scopes))
           OR EXISTS (SELECT FROM graph_facts f
                      WHERE f.tenant_id = p_tenant
                        AND f.fact_id IN (
                            SELECT unnest(p_facts)
                            UNION ALL
                            SELECT v.fact_id FROM graph_fact_evidence v
                            WHERE v.tenant_id = p_tenant AND v.note_id = ANY (p_notes))
                        AND (t.entity_id IN (f.subject_entity_id, f.object_entity_id)
                             OR EXISTS (SELECT FROM graph_fact_mentions m
                                        WHERE m.tenant_id = p_tenant AND m.fact_id = f.fact_id
                                          AND m.entity_id = t.entity_id))
                        AND (t.scopes IS NULL OR f.scope = ANY (t.scopes)))
           OR EXISTS (SELECT FROM note_entity_mentions m
                      JOIN memory_notes n ON n.tenant_id = p_tenant AND n.note_id = m.note_id
                      WHERE m.tenant_id = p_tenant AND m.note_id = ANY (p_notes) AND m.entity_id = t.entity_id
                        AND (t.scopes IS NULL OR n.scope = ANY (t.scopes))))
    ORDER BY t.created_at LIMIT 1
$$;
