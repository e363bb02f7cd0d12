-- Delete an object on a branch by a new version, and its relationships with it. Runs with the rights of its caller, who
-- has locked the head.
CREATE OR REPLACE FUNCTION retire_object(
    p_tenant text, p_branch uuid, p_object uuid, p_agent text, p_now timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_version uuid := make_id();
BEGIN
    INSERT INTO graph_object_versions (
        tenant_id, branch_id, canonical_id, version_id, version, project_id, type, subtype, key, title, status, labels,
        effective_from, effective_to, properties, evidence, content_hash, schema_version, deleted_at, suppression,
        supersedes_id, change_summary, written_by, created_at)
    SELECT o.tenant_id, o.branch_id, o.canonical_id, v_version, o.version + 1, o.project_id, o.type, o.subtype, o.key,
           o.title, o.status, o.labels, o.effective_from, o.effective_to, o.properties, o.evidence, o.content_hash,
           o.schema_version, p_now, o.suppression, o.version_id,
           version_summary(o.properties, 'deleted'), p_agent, p_now
    FROM graph_objects o
    WHERE o.tenant_id = p_tenant AND o.branch_id = p_branch AND o.canonical_id = p_object;
    UPDATE graph_objects o
    SET version_id = v_version, version = o.version + 1, deleted_at = p_now, updated_at = p_now, terms = ''
    WHERE o.tenant_id = p_tenant AND o.branch_id = p_branch AND o.canonical_id = p_object;
    PERFORM unlink_object(p_agent, p_object, p_now);
END
$$;
