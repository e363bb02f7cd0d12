-- Restores the relationships that went with an object that is restored itself, each by a new version: those whose other
-- end is live and whose place is still free. Answers how many. Runs with the rights of its caller, who holds the
-- object.
CREATE OR REPLACE FUNCTION relink_object(p_tenant text, p_agent text, p_object uuid, p_now timestamptz)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_count bigint;
BEGIN
    WITH held AS (
        SELECT r.branch_id, r.canonical_id, r.version_id, make_id() AS next_id FROM graph_relationships r
        WHERE r.tenant_id = p_tenant AND r.deleted_with = p_object AND r.deleted_at IS NOT NULL
          AND NOT EXISTS (SELECT FROM graph_objects o
                          WHERE o.tenant_id = p_tenant AND o.canonical_id IN (r.src_id, r.dst_id)
                            AND o.canonical_id <> p_object AND o.deleted_at IS NOT NULL)
          AND NOT EXISTS (SELECT FROM graph_relationships o
                          WHERE o.tenant_id = p_tenant AND o.branch_id = r.branch_id AND o.deleted_at IS NULL
                            AND o.type = r.type AND o.src_id = r.src_id AND (o.dst_id = r.dst_id OR r.one_src))
          AND NOT EXISTS (SELECT FROM graph_relationships o
                          WHERE r.one_dst AND o.tenant_id = p_tenant AND o.branch_id = r.branch_id
                            AND o.deleted_at IS NULL AND o.type = r.type AND o.dst_id = r.dst_id)
        ORDER BY r.canonical_id FOR UPDATE
    ), back AS (
        UPDATE graph_relationships r
        SET version_id = h.next_id, version = r.version + 1, deleted_at = NULL, updated_at = p_now, deleted_with = NULL
        FROM held h
        WHERE r.tenant_id = p_tenant AND r.canonical_id = h.canonical_id AND r.branch_id = h.branch_id
        RETURNING r.*, h.version_id AS before_id
    ), told AS (
        INSERT INTO graph_relationship_versions (
            tenant_id, branch_id, canonical_id, version_id, version, project_id, type, src_id, dst_id, weight, role_src,
            role_dst, valid_from, valid_to, properties, evidence, content_hash, schema_version, deleted_at, suppression,
            supersedes_id, change_summary, written_by, created_at)
        SELECT b.tenant_id, b.branch_id, b.canonical_id, b.version_id, b.version, b.project_id, b.type, b.src_id,
               b.dst_id, b.weight, b.role_src, b.role_dst, b.valid_from, b.valid_to, b.properties, b.evidence,
               b.content_hash, b.schema_version, NULL, b.suppression, b.before_id,
               jsonb_build_object('added', '{}'::jsonb, 'removed', '[]'::jsonb, 'updated', '{}'::jsonb,
                   'paths', '[]'::jsonb, 'meta', jsonb_build_object('added', 0, 'removed', 0, 'updated', 0,
                                                                    'restored', true)),
               p_agent, p_now
        FROM back b
        RETURNING version_id
    ) SELECT count(*) INTO v_count FROM told;
    RETURN v_count;
END
$$;
