-- Restore the relationships that were deleted with an object, or with their other end where that is live again: each by
-- a new version, where both ends are live and no other live relationship is in its place. Return how many. The other
-- ends are locked against deletion. Of the owner, as unlink_object is.
CREATE OR REPLACE FUNCTION relink_object(p_agent text, p_object uuid, p_now timestamptz)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_deleted uuid[];
    v_count bigint := 0;
    r record;
BEGIN
    v_deleted := ARRAY(
        SELECT x.canonical_id FROM graph_relationships x
        WHERE x.tenant_id = v_tenant AND x.src_id = p_object AND x.deleted_with IS NOT NULL
        UNION
        SELECT x.canonical_id FROM graph_relationships x
        WHERE x.tenant_id = v_tenant AND x.dst_id = p_object AND x.deleted_with IS NOT NULL);
    IF v_deleted = '{}' THEN
        RETURN 0;
    END IF;
    PERFORM FROM graph_objects o
    WHERE o.tenant_id = v_tenant AND o.canonical_id IN (
        SELECT e.id FROM graph_relationships x CROSS JOIN LATERAL (VALUES (x.src_id), (x.dst_id)) e(id)
        WHERE x.tenant_id = v_tenant AND x.canonical_id = ANY (v_deleted) AND e.id <> p_object)
    ORDER BY o.canonical_id, o.branch_id FOR SHARE;
    PERFORM lock_types(v_tenant, ARRAY(
        SELECT DISTINCT x.type FROM graph_relationships x
        WHERE x.tenant_id = v_tenant AND x.canonical_id = ANY (v_deleted)), false);
    FOR r IN
        SELECT x.*, m.one_src AS now_one_src, m.one_dst AS now_one_dst, make_id() AS next_id FROM graph_relationships x
        CROSS JOIN LATERAL type_multiplicity(v_tenant, x.type) m
        WHERE x.tenant_id = v_tenant AND x.canonical_id = ANY (v_deleted) AND x.deleted_with IS NOT NULL
        ORDER BY x.updated_at DESC, x.canonical_id FOR UPDATE OF x
    LOOP
        CONTINUE WHEN EXISTS (
                SELECT FROM graph_objects o
                WHERE o.tenant_id = v_tenant AND o.canonical_id IN (r.src_id, r.dst_id) AND o.deleted_at IS NOT NULL)
            OR EXISTS (
                SELECT FROM graph_relationships o
                WHERE o.tenant_id = v_tenant AND o.branch_id = r.branch_id AND o.src_id = r.src_id AND o.type = r.type
                  AND (o.dst_id = r.dst_id OR r.now_one_src) AND o.deleted_at IS NULL AND o.suppression = 0)
            OR (r.now_one_dst AND EXISTS (
                SELECT FROM graph_relationships o
                WHERE o.tenant_id = v_tenant AND o.branch_id = r.branch_id AND o.dst_id = r.dst_id AND o.type = r.type
                  AND o.deleted_at IS NULL AND o.suppression = 0));
        BEGIN
            UPDATE graph_relationships x
            SET version_id = r.next_id, version = r.version + 1, deleted_at = NULL, updated_at = p_now,
                deleted_with = NULL, one_src = r.now_one_src, one_dst = r.now_one_dst
            WHERE x.tenant_id = v_tenant AND x.canonical_id = r.canonical_id AND x.branch_id = r.branch_id;
        EXCEPTION WHEN unique_violation THEN
            CONTINUE;
        END;
        INSERT INTO graph_relationship_versions (
            tenant_id, branch_id, canonical_id, version_id, version, project_id, type, src_id, dst_id, weight, role_src,
            role_dst, valid_from, valid_to, properties, evidence, content_hash, schema_version, suppression,
            supersedes_id, change_summary, written_by, created_at)
        VALUES (v_tenant, r.branch_id, r.canonical_id, r.next_id, r.version + 1, r.project_id, r.type, r.src_id,
                r.dst_id, r.weight, r.role_src, r.role_dst, r.valid_from, r.valid_to, r.properties, r.evidence,
                r.content_hash, r.schema_version, r.suppression, r.version_id,
                version_summary(r.properties, 'restored'),
                p_agent, p_now);
        v_count := v_count + 1;
    END LOOP;
    RETURN v_count;
END
$$;
