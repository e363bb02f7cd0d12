-- Returns whether the note, document or entity that a job is about still exists and is not suppressed.
CREATE OR REPLACE FUNCTION job_subject_exists(p_tenant text, p_payload jsonb)
RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_uuid_form text := '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$';
BEGIN
    IF p_payload ->> 'note_id' ~ v_uuid_form AND NOT EXISTS (
        SELECT FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = (p_payload ->> 'note_id')::uuid AND n.deleted_at IS NULL
          AND n.suppression = 0) THEN
        RETURN false;
    END IF;
    IF p_payload ->> 'document_id' ~ v_uuid_form AND NOT EXISTS (
        SELECT FROM documents d
        WHERE d.tenant_id = p_tenant AND d.document_id = (p_payload ->> 'document_id')::uuid AND d.deleted_at IS NULL
          AND d.suppression = 0) THEN
        RETURN false;
    END IF;
    RETURN NOT (p_payload ->> 'entity_id' ~ v_uuid_form) IS TRUE OR EXISTS (
        SELECT FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND e.entity_id = (p_payload ->> 'entity_id')::uuid AND e.suppression = 0);
END
$$;
