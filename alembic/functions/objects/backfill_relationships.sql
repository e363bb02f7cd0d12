-- Create a relationship on main for each of these facts of the scope's project between the objects of its entities,
-- unless one of that type exists between them, live or deleted. Return how many were created. Of the owner, so that no
-- tombstone is issued at the same time.
CREATE OR REPLACE FUNCTION backfill_relationships(p_rows json)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_main uuid := ensure_main_branch(v_project);
    v_now timestamptz;
    v_made uuid[];
BEGIN
    IF v_tenant IS NULL OR v_main IS NULL THEN
        RAISE EXCEPTION 'backfill_relationships needs tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR SHARE;
    -- Lock the ends against deletion and the types against a new multiplicity.
    PERFORM FROM graph_objects o
    WHERE o.tenant_id = v_tenant AND o.canonical_id IN (
        SELECT e.object_canonical_id FROM json_to_recordset(p_rows) AS r(fact_id uuid)
        JOIN graph_facts f ON f.tenant_id = v_tenant AND f.fact_id = r.fact_id
        JOIN graph_entities e ON e.tenant_id = v_tenant AND e.entity_id IN (f.subject_entity_id, f.object_entity_id))
    ORDER BY o.canonical_id, o.branch_id FOR SHARE;
    PERFORM lock_types(v_tenant, ARRAY(
        SELECT DISTINCT p.canonical FROM json_to_recordset(p_rows) AS r(fact_id uuid)
        JOIN graph_facts f ON f.tenant_id = v_tenant AND f.fact_id = r.fact_id
        JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = f.predicate_id), false);
    v_now := clock_timestamp();
    WITH wanted AS (
        SELECT DISTINCT ON (s.object_canonical_id, p.canonical, t.object_canonical_id)
               r.relationship_id, s.object_canonical_id AS src_id, t.object_canonical_id AS dst_id, p.canonical AS type,
               f.confidence, f.valid_from, f.valid_to, r.content_hash
        FROM json_to_recordset(p_rows) AS r(fact_id uuid, relationship_id uuid, content_hash text)
        JOIN graph_facts f ON f.tenant_id = v_tenant AND f.fact_id = r.fact_id AND f.project_id = v_project
            AND f.scope <> 'agent_private' AND f.garden_id IS NULL AND f.retracted_at IS NULL AND f.suppression = 0
        JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = f.predicate_id
        JOIN graph_entities s ON s.tenant_id = v_tenant AND s.entity_id = f.subject_entity_id
        JOIN graph_entities t ON t.tenant_id = v_tenant AND t.entity_id = f.object_entity_id
        JOIN graph_objects a ON a.tenant_id = v_tenant AND a.branch_id = v_main
            AND a.canonical_id = s.object_canonical_id AND a.deleted_at IS NULL AND a.suppression = 0
        JOIN graph_objects b ON b.tenant_id = v_tenant AND b.branch_id = v_main
            AND b.canonical_id = t.object_canonical_id AND b.deleted_at IS NULL AND b.suppression = 0
        WHERE s.object_canonical_id <> t.object_canonical_id
        ORDER BY s.object_canonical_id, p.canonical, t.object_canonical_id, f.confidence DESC, f.fact_id
    ), made AS (
        INSERT INTO graph_relationships AS x (
            tenant_id, branch_id, canonical_id, version_id, version, project_id, type, src_id, dst_id, weight,
            valid_from, valid_to, properties, content_hash, created_at, updated_at, one_src, one_dst)
        SELECT v_tenant, v_main, w.relationship_id, w.relationship_id, 1, v_project, w.type, w.src_id, w.dst_id,
               w.confidence, w.valid_from, w.valid_to, '{}', decode(w.content_hash, 'hex'), v_now, v_now,
               k.one_src, k.one_dst
        FROM wanted w CROSS JOIN LATERAL type_multiplicity(v_tenant, w.type) k
        WHERE NOT EXISTS (
            SELECT FROM graph_relationships o
            WHERE o.tenant_id = v_tenant AND o.branch_id = v_main AND o.src_id = w.src_id AND o.type = w.type
              AND o.dst_id = w.dst_id)
        ORDER BY w.relationship_id
        -- Where a type allows one, the existing relationship stays.
        ON CONFLICT DO NOTHING
        RETURNING x.*
    ), versions AS (
        INSERT INTO graph_relationship_versions AS v (
            tenant_id, branch_id, canonical_id, version_id, version, project_id, type, src_id, dst_id, weight,
            valid_from, valid_to, properties, content_hash, change_summary, written_by, created_at)
        SELECT m.tenant_id, m.branch_id, m.canonical_id, m.version_id, m.version, m.project_id, m.type, m.src_id,
               m.dst_id, m.weight, m.valid_from, m.valid_to, m.properties, m.content_hash,
               version_summary(m.properties, NULL), v_agent, m.created_at
        FROM made m
        RETURNING v.canonical_id
    )
    SELECT array_agg(t.canonical_id) INTO v_made FROM versions t;
    PERFORM hide_or_restore_objects(v_tenant, v_made);
    RETURN coalesce(cardinality(v_made), 0);
END
$$;
