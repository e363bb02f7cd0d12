-- Write the next version of a relationship: update the head and insert the version. p_row is the whole relationship as
-- JSON. Runs with the rights of its caller, who has locked the head.
CREATE OR REPLACE FUNCTION change_relationship(p_tenant text, p_agent text, p_row json, p_now timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    r record;
BEGIN
    SELECT * INTO r FROM json_to_record(p_row) AS x(
        branch_id uuid, canonical_id uuid, version_id uuid, version int, supersedes_id uuid, project_id text,
        type text, src_id uuid, dst_id uuid, weight double precision, role_src text, role_dst text,
        valid_from timestamptz, valid_to timestamptz, properties jsonb, evidence jsonb, content_hash text,
        schema_version int, deleted_at timestamptz, change_summary jsonb);
    PERFORM lock_types(p_tenant, ARRAY[r.type], false);
    UPDATE graph_relationships x
    SET version_id = r.version_id, version = r.version, weight = r.weight, role_src = r.role_src, role_dst = r.role_dst,
        valid_from = r.valid_from, valid_to = r.valid_to, properties = r.properties, evidence = r.evidence,
        content_hash = decode(r.content_hash, 'hex'), schema_version = r.schema_version, deleted_at = r.deleted_at,
        deleted_with = NULL, updated_at = p_now, one_src = m.one_src, one_dst = m.one_dst
    FROM type_multiplicity(p_tenant, r.type) m
    WHERE x.tenant_id = p_tenant AND x.canonical_id = r.canonical_id AND x.branch_id = r.branch_id;
    INSERT INTO graph_relationship_versions (
        tenant_id, branch_id, canonical_id, version_id, version, project_id, type, src_id, dst_id, weight, role_src,
        role_dst, valid_from, valid_to, properties, evidence, content_hash, schema_version, deleted_at, supersedes_id,
        change_summary, written_by, created_at)
    VALUES (p_tenant, r.branch_id, r.canonical_id, r.version_id, r.version, r.project_id, r.type, r.src_id, r.dst_id,
            r.weight, r.role_src, r.role_dst, r.valid_from, r.valid_to, r.properties, r.evidence,
            decode(r.content_hash, 'hex'), r.schema_version, r.deleted_at, r.supersedes_id, r.change_summary, p_agent,
            p_now);
    PERFORM hide_or_restore_objects(p_tenant, ARRAY[r.canonical_id]);
END
$$;
