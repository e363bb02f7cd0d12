-- Has every live relationship of a type kept to how many there may be of it as its type now says, in all projects of the
-- tenant. Where some object has more already, nothing is changed and those are answered: by id in the caller's own
-- project, by their number elsewhere. The caller holds the type (see hold_types).
-- Of the owner, since a type is the tenant's and its relationships are of many projects.
CREATE OR REPLACE FUNCTION mark_multiplicity(p_type text)
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
    m := multiplicity_of(v_tenant, p_type);
    RETURN QUERY
    WITH crowded AS (
        SELECT 'src' AS side, r.src_id AS object_id, max(r.project_id) AS project_id FROM graph_relationships r
        WHERE m.one_src AND r.tenant_id = v_tenant AND r.type = p_type AND r.deleted_at IS NULL AND r.suppression = 0
        GROUP BY r.branch_id, r.src_id HAVING count(*) > 1
        UNION ALL
        SELECT 'dst', r.dst_id, max(r.project_id) FROM graph_relationships r
        WHERE m.one_dst AND r.tenant_id = v_tenant AND r.type = p_type AND r.deleted_at IS NULL AND r.suppression = 0
        GROUP BY r.branch_id, r.dst_id HAVING count(*) > 1
    )
    SELECT c.side, shown.object_id, count(*) FROM crowded c
    CROSS JOIN LATERAL (
        SELECT CASE WHEN coalesce(c.project_id, v_project) = v_project THEN c.object_id END AS object_id) shown
    GROUP BY c.side, shown.object_id ORDER BY 1 DESC, 2 LIMIT 20;
    IF NOT FOUND THEN
        UPDATE graph_relationships r SET one_src = m.one_src, one_dst = m.one_dst
        WHERE r.tenant_id = v_tenant AND r.type = p_type AND (r.one_src <> m.one_src OR r.one_dst <> m.one_dst);
    END IF;
END
$$;
