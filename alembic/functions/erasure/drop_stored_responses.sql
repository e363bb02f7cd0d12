-- Deletes stored responses that show one of these ids, or a document that names the entity or contains one of the
-- notes: a repeated request must not show them either. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION drop_stored_responses(p_tenant text, p_entity uuid, p_notes uuid[], p_ids uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_documents uuid[] := ARRAY(
        SELECT m.document_id FROM document_entity_mentions m
        WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity
        UNION
        SELECT x.document_id FROM document_notes x WHERE x.tenant_id = p_tenant AND x.note_id = ANY (p_notes));
BEGIN
    DELETE FROM idempotency_keys k
    WHERE k.tenant_id = p_tenant AND NOT k.sealed AND k.path ~ '^/v1/(facts|entities|notes|conflicts|documents|graph)'
      AND contains_ids(encode(k.body, 'escape'), p_ids || v_documents);
END
$$;
