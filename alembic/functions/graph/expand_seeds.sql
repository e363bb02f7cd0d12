-- Returns the entities reached from the seeds in the context's scope (NULL: in each scope by itself), with the hops,
-- the last edge, its confidence, and the out-degree of that edge's subject, counted up to p_most. As traverse_edges
-- otherwise. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION expand_seeds(
    p_context read_context, p_traversal traversal, p_seeds uuid[], p_min_trust double precision, p_most int)
RETURNS TABLE (
    scope text, entity_id uuid, hops int, edge_id uuid, confidence double precision, subject_id uuid, out_degree bigint,
    truncated boolean)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    -- In variables of their own: fields of a record are slower to read for every edge.
    v_tenant text := p_context.tenant_id;
    v_project text := p_context.project_id;
    v_scope text := p_context.scope;
    v_known timestamptz := p_context.known_at;
    v_valid timestamptz := coalesce(p_context.valid_at, p_context.known_at, clock_timestamp());
BEGIN
    RETURN QUERY
    WITH reached AS MATERIALIZED (
        SELECT s.scope, w.entity_id, w.hops, w.edge_id, w.confidence, w.truncated, x.subject_entity_id AS subject_id
        FROM unnest(CASE WHEN v_scope IS NULL THEN '{agent_private,project_shared,org_shared,public}'
                         ELSE ARRAY[v_scope] END) s(scope)
        CROSS JOIN LATERAL traverse_edges(
            ROW(v_tenant, v_project, v_valid, v_known, s.scope)::read_context, p_traversal, p_seeds, NULL,
            p_min_trust) w
        CROSS JOIN LATERAL (
            SELECT x.subject_entity_id FROM entity_edges x
            WHERE x.tenant_id = v_tenant AND x.edge_id = w.edge_id OFFSET 0) x
    ), degrees AS MATERIALIZED (
        SELECT d.scope, d.subject_id, o.out_degree
        FROM (SELECT DISTINCT r.scope, r.subject_id FROM reached r) d
        CROSS JOIN LATERAL (
            SELECT count(*) AS out_degree FROM (
                SELECT FROM entity_edges x
                WHERE x.tenant_id = v_tenant AND x.project_id = v_project AND x.subject_entity_id = d.subject_id
                  AND x.scope = d.scope
                  AND edge_stands(x.valid_from, x.valid_until, x.created_at, x.closed_at, x.retracted_at, v_valid,
                                  v_known)
                LIMIT p_most) e) o
    )
    SELECT r.scope, r.entity_id, r.hops, r.edge_id, r.confidence, r.subject_id, d.out_degree, r.truncated
    FROM reached r JOIN degrees d ON d.scope = r.scope AND d.subject_id = r.subject_id;
END
$$;
