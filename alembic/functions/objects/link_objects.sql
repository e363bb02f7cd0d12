-- Store new relationships with their first version and return the outcome of each: created; exists, with the live one
-- of that type between the same objects; src or dst, the side on which its type allows no second one; again: the
-- relationship that was in its way is gone. Unique indexes decide between concurrent writers. p_rows are whole
-- relationships as JSON. Runs with the rights of its caller, who has locked both ends.
CREATE OR REPLACE FUNCTION link_objects(p_tenant text, p_agent text, p_rows json, p_now timestamptz)
RETURNS TABLE (canonical_id uuid, outcome text, existing_id uuid)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_made uuid[];
BEGIN
    PERFORM lock_types(p_tenant, ARRAY(SELECT DISTINCT r.type FROM json_to_recordset(p_rows) AS r(type text)), false);
    WITH given AS (
        SELECT r.*, t.one_src, t.one_dst
        FROM json_to_recordset(p_rows) AS r(
            branch_id uuid, canonical_id uuid, project_id text, type text, src_id uuid, dst_id uuid,
            weight double precision, role_src text, role_dst text, valid_from timestamptz, valid_to timestamptz,
            properties jsonb, evidence jsonb, content_hash text, schema_version int)
        JOIN (SELECT n.type, m.one_src, m.one_dst
              FROM (SELECT DISTINCT x.type FROM json_to_recordset(p_rows) AS x(type text)) n
              CROSS JOIN LATERAL type_multiplicity(p_tenant, n.type) m) t ON t.type = r.type
    ), made AS (
        INSERT INTO graph_relationships AS x (
            tenant_id, branch_id, canonical_id, version_id, version, project_id, type, src_id, dst_id, weight, role_src,
            role_dst, valid_from, valid_to, properties, evidence, content_hash, schema_version, created_at, updated_at,
            one_src, one_dst)
        SELECT p_tenant, r.branch_id, r.canonical_id, r.canonical_id, 1, r.project_id, r.type, r.src_id, r.dst_id,
               r.weight, r.role_src, r.role_dst, r.valid_from, r.valid_to, r.properties, r.evidence,
               decode(r.content_hash, 'hex'), r.schema_version, p_now, p_now, r.one_src, r.one_dst
        FROM given r
        -- Also checked here, for relationships from before the installation's type allowed only one.
        WHERE NOT (r.one_src AND EXISTS (
                  SELECT FROM graph_relationships o
                  WHERE o.tenant_id = p_tenant AND o.branch_id = r.branch_id AND o.src_id = r.src_id
                    AND o.type = r.type AND o.deleted_at IS NULL))
          AND NOT (r.one_dst AND EXISTS (
                  SELECT FROM graph_relationships o
                  WHERE o.tenant_id = p_tenant AND o.branch_id = r.branch_id AND o.dst_id = r.dst_id
                    AND o.type = r.type AND o.deleted_at IS NULL))
        ORDER BY r.type, r.src_id, r.dst_id, r.canonical_id
        ON CONFLICT DO NOTHING
        RETURNING x.canonical_id
    ) SELECT coalesce(array_agg(m.canonical_id), '{}') INTO v_made FROM made m;
    INSERT INTO graph_relationship_versions (
        tenant_id, branch_id, canonical_id, version_id, version, project_id, type, src_id, dst_id, weight, role_src,
        role_dst, valid_from, valid_to, properties, evidence, content_hash, schema_version, change_summary, written_by,
        created_at)
    SELECT p_tenant, r.branch_id, r.canonical_id, r.canonical_id, 1, r.project_id, r.type, r.src_id, r.dst_id,
           r.weight, r.role_src, r.role_dst, r.valid_from, r.valid_to, r.properties, r.evidence,
           decode(r.content_hash, 'hex'), r.schema_version, r.change_summary, p_agent, p_now
    FROM json_to_recordset(p_rows) AS r(
        branch_id uuid, canonical_id uuid, project_id text, type text, src_id uuid, dst_id uuid,
        weight double precision, role_src text, role_dst text, valid_from timestamptz, valid_to timestamptz,
        properties jsonb, evidence jsonb, content_hash text, schema_version int, change_summary jsonb)
    WHERE r.canonical_id = ANY (v_made);
    PERFORM hide_or_restore_objects(p_tenant, v_made);
    RETURN QUERY
    SELECT r.canonical_id,
           CASE WHEN r.canonical_id = ANY (v_made) THEN 'created' WHEN e.canonical_id IS NOT NULL THEN 'exists'
                WHEN m.one_src AND EXISTS (
                    SELECT FROM graph_relationships o
                    WHERE o.tenant_id = p_tenant AND o.branch_id = r.branch_id AND o.src_id = r.src_id
                      AND o.type = r.type AND o.deleted_at IS NULL) THEN 'src'
                WHEN m.one_dst AND EXISTS (
                    SELECT FROM graph_relationships o
                    WHERE o.tenant_id = p_tenant AND o.branch_id = r.branch_id AND o.dst_id = r.dst_id
                      AND o.type = r.type AND o.deleted_at IS NULL) THEN 'dst'
                ELSE 'again' END,
           e.canonical_id
    FROM json_to_recordset(p_rows) AS r(branch_id uuid, canonical_id uuid, type text, src_id uuid, dst_id uuid)
    CROSS JOIN LATERAL type_multiplicity(p_tenant, r.type) m
    LEFT JOIN graph_relationships e
        ON e.tenant_id = p_tenant AND e.branch_id = r.branch_id AND e.src_id = r.src_id AND e.dst_id = r.dst_id
       AND e.type = r.type AND e.deleted_at IS NULL AND e.canonical_id <> r.canonical_id;
END
$$;
