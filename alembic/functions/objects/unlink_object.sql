-- Delete the live relationships of an object that is deleted itself, each by a new version, and mark them as deleted
-- with it. Return how many. Of the owner: an object of every project has relationships in all of them, also hidden
-- ones.
CREATE OR REPLACE FUNCTION unlink_object(p_agent text, p_object uuid, p_now timestamptz)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_count bigint;
BEGIN
    WITH locked AS (
        SELECT r.branch_id, r.canonical_id, r.version_id, make_id() AS next_id FROM graph_relationships r
        WHERE r.tenant_id = v_tenant AND r.deleted_at IS NULL
          AND r.branch_id IN (SELECT b.branch_id FROM branches b WHERE b.tenant_id = v_tenant)
          AND (r.src_id = p_object OR r.dst_id = p_object)
        ORDER BY r.canonical_id, r.branch_id FOR UPDATE
    ), deleted AS (
        UPDATE graph_relationships r
        SET version_id = h.next_id, version = r.version + 1, deleted_at = p_now, updated_at = p_now,
            deleted_with = p_object
        FROM locked h
        WHERE r.tenant_id = v_tenant AND r.canonical_id = h.canonical_id AND r.branch_id = h.branch_id
        RETURNING r.*, h.version_id AS before_id
    ), versions AS (
        INSERT INTO graph_relationship_versions (
            tenant_id, branch_id, canonical_id, version_id, version, project_id, type, src_id, dst_id, weight, role_src,
            role_dst, valid_from, valid_to, properties, evidence, content_hash, schema_version, deleted_at, suppression,
            supersedes_id, change_summary, written_by, created_at)
        SELECT g.tenant_id, g.branch_id, g.canonical_id, g.version_id, g.version, g.project_id, g.type, g.src_id,
               g.dst_id, g.weight, g.role_src, g.role_dst, g.valid_from, g.valid_to, g.properties, g.evidence,
               g.content_hash, g.schema_version, g.deleted_at, g.suppression, g.before_id,
               version_summary(g.properties, 'deleted'), p_agent, p_now
        FROM deleted g
        RETURNING version_id
    ) SELECT count(*) INTO v_count FROM versions;
    RETURN v_count;
END
$$;
