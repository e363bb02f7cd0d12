-- Lock up to p_limit live objects of a type after p_after, in the order of their ids, and return the last id and what
-- describes them; NULL for both when there are no more. In all projects of the tenant, or in that of the scope. Hidden
-- objects are included, since they may be restored. Of the owner, because a type holds for what no caller may see.
CREATE OR REPLACE FUNCTION lock_objects_of_type(
    p_type text, p_after uuid, p_limit int, OUT last uuid, OUT objects json)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_ids uuid[] := ARRAY(
        SELECT x.canonical_id FROM branches b
        CROSS JOIN LATERAL (
            SELECT o.canonical_id FROM graph_objects o
            WHERE o.tenant_id = v_tenant AND o.branch_id = b.branch_id AND o.type = p_type
              AND o.canonical_id > p_after AND o.deleted_at IS NULL
            ORDER BY o.canonical_id LIMIT p_limit) x
        WHERE b.tenant_id = v_tenant AND (v_project IS NULL OR b.project_id = v_project)
        ORDER BY x.canonical_id LIMIT p_limit);
BEGIN
    last := v_ids[cardinality(v_ids)];
    SELECT json_agg(json_build_object(
               'canonical_id', l.canonical_id, 'branch_id', l.branch_id, 'project_id', l.project_id, 'title', l.title,
               'properties', l.properties, 'embed_text', l.embed_text, 'searched', l.terms <> ''))
    INTO objects
    FROM (SELECT o.* FROM graph_objects o
          WHERE o.tenant_id = v_tenant AND o.canonical_id = ANY (v_ids) AND o.type = p_type AND o.deleted_at IS NULL
            AND (v_project IS NULL OR o.project_id = v_project)
          ORDER BY o.canonical_id, o.branch_id FOR NO KEY UPDATE) l;
END
$$;
