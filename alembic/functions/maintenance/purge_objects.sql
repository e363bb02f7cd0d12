-- Retention: deletes up to p_limit objects and as many relationships that were deleted before p_before, with all their
-- versions, in the scope's tenant or project. Kept are those that a tombstone hides, and those that a legal hold
-- protects by an entity they are bound to or name. An object takes its relationships along, and is kept with one that
-- is held. Those of every project go when no project is locked or frozen. Returns the counts.
CREATE OR REPLACE FUNCTION purge_objects(p_before timestamptz, p_limit int, OUT objects bigint, OUT relationships bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_projects text[] := ARRAY(SELECT * FROM lock_purgeable_projects(v_tenant, v_project));
    v_shared boolean := v_project IS NULL AND cardinality(v_projects) = (
        SELECT count(*) FROM projects p WHERE p.tenant_id = v_tenant);
    v_objects uuid[];
    v_relationships uuid[];
BEGIN
    v_objects := ARRAY(
        SELECT o.canonical_id FROM graph_objects o
        WHERE o.tenant_id = v_tenant AND o.deleted_at < p_before AND o.suppression = 0
          AND (o.project_id = ANY (v_projects) OR (o.project_id IS NULL AND v_shared))
          AND find_object_hold(v_tenant, ARRAY[o.canonical_id], ARRAY(
              SELECT r.canonical_id FROM graph_relationships r
              WHERE r.tenant_id = v_tenant AND r.branch_id = o.branch_id AND r.deleted_at IS NOT NULL
                AND r.src_id = o.canonical_id
              UNION ALL
              SELECT r.canonical_id FROM graph_relationships r
              WHERE r.tenant_id = v_tenant AND r.branch_id = o.branch_id AND r.deleted_at IS NOT NULL
                AND r.dst_id = o.canonical_id)) IS NULL
        ORDER BY o.deleted_at, o.canonical_id LIMIT p_limit FOR UPDATE SKIP LOCKED);
    v_relationships := ARRAY(
        SELECT r.canonical_id FROM graph_relationships r
        WHERE r.tenant_id = v_tenant AND r.deleted_at < p_before AND r.suppression = 0
          AND (r.project_id = ANY (v_projects) OR (r.project_id IS NULL AND v_shared))
          AND find_object_hold(v_tenant, '{}', ARRAY[r.canonical_id]) IS NULL
        ORDER BY r.deleted_at, r.canonical_id LIMIT p_limit FOR UPDATE SKIP LOCKED);
    objects := cardinality(v_objects);
    relationships := cardinality(v_relationships);
    v_relationships := v_relationships || ARRAY(
        SELECT r.canonical_id FROM graph_relationships r
        WHERE r.tenant_id = v_tenant AND (r.src_id = ANY (v_objects) OR r.dst_id = ANY (v_objects)));
    IF objects + relationships > 0 THEN
        PERFORM erase_objects(v_tenant, v_objects, v_relationships, '{}');
    END IF;
END
$$;
