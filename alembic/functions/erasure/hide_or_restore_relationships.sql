-- Hides or restores relationships on every branch: each gets the strictest level of its own text and of both ends.
-- One whose place was taken meanwhile is restored as deleted. Runs with the settings and rights of restore_objects.
CREATE OR REPLACE FUNCTION hide_or_restore_relationships(
    p_tenant text, p_agent text, p_relationships uuid[], p_now timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    v_ids uuid[];
    v_levels smallint[];
    v_head record;
BEGIN
    PERFORM FROM graph_relationships r
    JOIN (SELECT DISTINCT v.branch_id, v.canonical_id FROM graph_relationship_versions v
          WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (p_relationships)) v
        ON v.branch_id = r.branch_id AND v.canonical_id = r.canonical_id
    WHERE r.tenant_id = p_tenant ORDER BY r.canonical_id, r.branch_id FOR UPDATE OF r;
    WITH ends AS MATERIALIZED (
        SELECT DISTINCT v.canonical_id AS edge, x.id FROM graph_relationship_versions v
        CROSS JOIN LATERAL (VALUES (v.canonical_id), (v.src_id), (v.dst_id)) x(id)
        WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (p_relationships)
    ), settled AS (
        SELECT e.edge, CASE WHEN bool_or(l.level = 1) THEN 1 WHEN bool_or(l.level = 2) THEN 2 ELSE 0 END AS level
        FROM ends e JOIN object_levels(p_tenant, ARRAY(SELECT x.id FROM ends x)) l ON l.id = e.id
        GROUP BY e.edge
    )
    SELECT array_agg(s.edge), array_agg(s.level::smallint) INTO v_ids, v_levels FROM settled s;
    UPDATE graph_relationships r SET suppression = l.level FROM unnest(v_ids, v_levels) l(id, level)
    WHERE r.tenant_id = p_tenant AND r.canonical_id = l.id AND l.level > 0 AND r.suppression <> l.level;
    FOR v_head IN
        SELECT r.* FROM graph_relationships r JOIN unnest(v_ids, v_levels) l(id, level) ON l.id = r.canonical_id
        WHERE r.tenant_id = p_tenant AND l.level = 0 AND r.suppression > 0
        ORDER BY r.created_at, r.canonical_id, r.branch_id
    LOOP
        IF v_head.deleted_at IS NULL AND EXISTS (
            SELECT FROM graph_relationships r
            WHERE r.tenant_id = p_tenant AND r.branch_id = v_head.branch_id AND r.src_id = v_head.src_id
              AND r.type = v_head.type AND (r.dst_id = v_head.dst_id OR (r.one_src AND v_head.one_src))
              AND r.deleted_at IS NULL AND r.suppression = 0
            UNION ALL
            SELECT FROM graph_relationships r
            WHERE r.tenant_id = p_tenant AND r.branch_id = v_head.branch_id AND r.dst_id = v_head.dst_id
              AND r.type = v_head.type AND r.one_dst AND v_head.one_dst
              AND r.deleted_at IS NULL AND r.suppression = 0) THEN
            PERFORM retire_relationship(p_tenant, v_head.branch_id, v_head.canonical_id, p_agent, p_now);
        END IF;
        UPDATE graph_relationships r SET suppression = 0
        WHERE r.tenant_id = p_tenant AND r.branch_id = v_head.branch_id AND r.canonical_id = v_head.canonical_id;
    END LOOP;
    UPDATE graph_relationship_versions v SET suppression = l.level FROM unnest(v_ids, v_levels) l(id, level)
    WHERE v.tenant_id = p_tenant AND v.canonical_id = l.id AND v.suppression <> l.level;
END
$$;
