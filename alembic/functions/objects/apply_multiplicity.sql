-- Enforce the multiplicity of a type on its live relationships in all projects of the tenant. Where objects exceed it,
-- change nothing and return them: by id in the caller's project, by their number elsewhere. The caller has locked the
-- type (see lock_types). Of the owner, since the relationships of a type are in many projects.
CREATE OR REPLACE FUNCTION apply_multiplicity(p_type text)
RETURNS TABLE (side text, object_id uuid, objects bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    m record;
BEGIN
    m := type_multiplicity(v_tenant, p_type);
    RETURN QUERY
    WITH exceeding AS (
        SELECT 'src' AS side, r.src_id AS object_id, max(r.project_id) AS project_id FROM graph_relationships r
        WHERE m.one_src AND r.tenant_id = v_tenant AND r.type = p_type AND r.deleted_at IS NULL AND r.suppression = 0
        GROUP BY r.branch_id, r.src_id HAVING count(*) > 1
        UNION ALL
        SELECT 'dst', r.dst_id, max(r.project_id) FROM graph_relationships r
        WHERE m.one_dst AND r.tenant_id = v_tenant AND r.type = p_type AND r.deleted_at IS NULL AND r.suppression = 0
        GROUP BY r.branch_id, r.dst_id HAVING count(*) > 1
    )
    SELECT c.side, shown.object_id, count(*) FROM exceeding c
    CROSS JOIN LATERAL (
        SELECT CASE WHEN coalesce(c.project_id, v_project) = v_project THEN c.object_id END AS object_id) shown
    GROUP BY c.side, shown.object_id ORDER BY 1 DESC, 2 LIMIT 20;
    IF NOT FOUND THEN
        UPDATE graph_relationships r SET one_src = m.one_src, one_dst = m.one_dst
        WHERE r.tenant_id = v_tenant AND r.type = p_type AND (r.one_src <> m.one_src OR r.one_dst <> m.one_dst);
    END IF;
END
$$;
