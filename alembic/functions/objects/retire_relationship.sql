-- Delete a relationship on a branch by a new version. Runs with the rights of its caller, who has locked the head.
CREATE OR REPLACE FUNCTION retire_relationship(
    p_tenant text, p_branch uuid, p_relationship uuid, p_agent text, p_now timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_version uuid := make_id();
BEGIN
    INSERT INTO graph_relationship_versions (
        tenant_id, branch_id, canonical_id, version_id, version, project_id, type, src_id, dst_id, weight, role_src,
        role_dst, valid_from, valid_to, properties, evidence, content_hash, schema_version, deleted_at, suppression,
        supersedes_id, change_summary, written_by, created_at)
    SELECT r.tenant_id, r.branch_id, r.canonical_id, v_version, r.version + 1, r.project_id, r.type, r.src_id, r.dst_id,
           r.weight, r.role_src, r.role_dst, r.valid_from, r.valid_to, r.properties, r.evidence, r.content_hash,
           r.schema_version, p_now, r.suppression, r.version_id,
           version_summary(r.properties, 'deleted'), p_agent, p_now
    FROM graph_relationships r
    WHERE r.tenant_id = p_tenant AND r.branch_id = p_branch AND r.canonical_id = p_relationship;
    UPDATE graph_relationships r
    SET version_id = v_version, version = r.version + 1, deleted_at = p_now, updated_at = p_now
    WHERE r.tenant_id = p_tenant AND r.branch_id = p_branch AND r.canonical_id = p_relationship;
END
$$;
