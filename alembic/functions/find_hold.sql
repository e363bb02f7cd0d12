-- A legal hold that keeps an entity in these scopes (NULL: all) from being erased: one on itself, or on another entity
-- of a fact or note that would go with it. NULL when there is none. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_hold(p_tenant text, p_project text, p_entity uuid, p_scopes text[])
RETURNS uuid
LANGUAGE sql STABLE
AS $$
    SELECT t.tombstone_id FROM tombstones t
    WHERE t.tenant_id = p_tenant AND t.project_id = p_project AND t.legal_hold
      AND NOT EXISTS (SELECT FROM tombstone_revocations r
                      WHERE r.tenant_id = p_tenant AND r.tombstone_id = t.tombstone_id)
      AND ((t.entity_id = p_entity AND (t.scopes IS NULL OR p_scopes IS NULL OR t.scopes && p_scopes))
           OR EXISTS (SELECT FROM graph_facts f
                      WHERE f.tenant_id = p_tenant AND f.project_id = p_project
                        AND ((f.subject_entity_id = p_entity AND f.object_entity_id = t.entity_id)
                             OR (f.subject_entity_id = t.entity_id AND f.object_entity_id = p_entity))
                        AND (t.scopes IS NULL OR f.scope = ANY (t.scopes))
                        AND (p_scopes IS NULL OR f.scope = ANY (p_scopes)))
           OR EXISTS (SELECT FROM note_entity_mentions m
                      JOIN note_entity_mentions o ON o.tenant_id = p_tenant AND o.note_id = m.note_id
                      JOIN memory_notes n ON n.tenant_id = p_tenant AND n.note_id = m.note_id
                      WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity AND o.entity_id = t.entity_id
                        AND (t.scopes IS NULL OR n.scope = ANY (t.scopes))
                        AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))))
    ORDER BY t.created_at LIMIT 1
$$;
