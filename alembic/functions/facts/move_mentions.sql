-- Moves the mentions of p_from in notes, facts, documents and objects to p_into. Runs with the rights of
-- merge_entities.
CREATE OR REPLACE FUNCTION move_mentions(p_tenant text, p_from uuid, p_into uuid)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, suppression, by_name,
                                      mention, confidence, user_id)
    SELECT m.tenant_id, m.project_id, m.note_id, p_into, m.created_at, m.suppression, m.by_name, m.mention, m.confidence,
           m.user_id
    FROM note_entity_mentions m WHERE m.tenant_id = p_tenant AND m.entity_id = p_from
    ON CONFLICT DO NOTHING;
    DELETE FROM note_entity_mentions m WHERE m.tenant_id = p_tenant AND m.entity_id = p_from;
    UPDATE graph_fact_mentions m SET entity_id = p_into
    WHERE m.tenant_id = p_tenant AND m.entity_id = p_from AND NOT EXISTS (
        SELECT FROM graph_fact_mentions o
        WHERE o.tenant_id = p_tenant AND o.fact_id = m.fact_id AND o.entity_id = p_into);
    DELETE FROM graph_fact_mentions m WHERE m.tenant_id = p_tenant AND m.entity_id = p_from;
    INSERT INTO document_entity_mentions (tenant_id, project_id, document_id, entity_id, created_at, suppression, user_id)
    SELECT m.tenant_id, m.project_id, m.document_id, p_into, m.created_at, m.suppression, m.user_id
    FROM document_entity_mentions m WHERE m.tenant_id = p_tenant AND m.entity_id = p_from
    ON CONFLICT DO NOTHING;
    DELETE FROM document_entity_mentions m WHERE m.tenant_id = p_tenant AND m.entity_id = p_from;
    INSERT INTO object_entity_mentions (tenant_id, project_id, canonical_id, entity_id, created_at, suppression)
    SELECT m.tenant_id, m.project_id, m.canonical_id, p_into, m.created_at, m.suppression
    FROM object_entity_mentions m WHERE m.tenant_id = p_tenant AND m.entity_id = p_from
    ON CONFLICT DO NOTHING;
    DELETE FROM object_entity_mentions m WHERE m.tenant_id = p_tenant AND m.entity_id = p_from;
END
$$;
