-- Returns the documents that an erasure blanks: those that name the entity or lose a note with it, except those that a
-- legal hold on another entity keeps. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_covered_documents(p_tombstone tombstones, p_notes uuid[])
RETURNS SETOF uuid
LANGUAGE sql STABLE
AS $$
    SELECT d.document_id FROM documents d
    WHERE d.tenant_id = p_tombstone.tenant_id AND d.project_id = p_tombstone.project_id
      AND (EXISTS (SELECT FROM document_entity_mentions m
                   WHERE m.tenant_id = p_tombstone.tenant_id AND m.document_id = d.document_id
                     AND m.entity_id = p_tombstone.entity_id)
           OR EXISTS (SELECT FROM document_notes x
                      WHERE x.tenant_id = p_tombstone.tenant_id AND x.document_id = d.document_id
                        AND x.note_id = ANY (p_notes)))
      AND (p_tombstone.scopes IS NULL OR d.scope = ANY (p_tombstone.scopes))
      AND NOT EXISTS (SELECT FROM document_entity_mentions m
                      JOIN graph_entities e ON e.tenant_id = p_tombstone.tenant_id AND e.entity_id = m.entity_id
                      WHERE m.tenant_id = p_tombstone.tenant_id AND m.document_id = d.document_id
                        AND d.scope = ANY (e.held_scopes))
$$;
