-- Who is reached from some entities in each of these scopes (NULL: all), each scope walked by itself, with what it takes
-- to score it: the hops, the last edge, how sure it is, and how many edges go out from that edge's subject, counted up to
-- p_most. Both directions are walked; times, fans and cap as in walk_edges. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION expand_seeds(
    p_tenant text, p_project text, p_scopes text[], p_seeds uuid[], p_depth int, p_confidence double precision,
    p_trust double precision, p_valid timestamptz, p_known timestamptz, p_fans int[], p_cap int, p_most int)
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
    v_valid timestamptz := coalesce(p_valid, p_known, clock_timestamp());
BEGIN
    RETURN QUERY
    WITH reached AS MATERIALIZED (
        SELECT s.scope, w.entity_id, w.hops, w.edge_id, w.confidence, w.truncated, x.subject_entity_id AS subject_id
        FROM unnest(coalesce(p_scopes, '{agent_private,project_shared,org_shared,public}')) s(scope)
        CROSS JOIN LATERAL walk_edges(
            p_tenant, p_project, s.scope, p_seeds, p_depth, 'both', NULL, p_confidence, 0, p_trust, v_valid, p_known,
            p_fans, p_cap) w
        CROSS JOIN LATERAL (
            SELECT x.subject_entity_id FROM entity_edges x
            WHERE x.tenant_id = p_tenant AND x.edge_id = w.edge_id OFFSET 0) x
    ), degrees AS MATERIALIZED (
        SELECT d.scope, d.subject_id, o.out_degree
        FROM (SELECT DISTINCT r.scope, r.subject_id FROM reached r) d
        CROSS JOIN LATERAL (
            SELECT count(*) AS out_degree FROM (
                SELECT FROM entity_edges x
                WHERE x.tenant_id = p_tenant AND x.project_id = p_project AND x.subject_entity_id = d.subject_id
                  AND x.scope = d.scope AND x.created_at <= coalesce(p_known, 'infinity')
                  AND (x.retracted_at IS NULL OR x.retracted_at > p_known)
                  AND x.valid_from <= v_valid AND (x.valid_until > v_valid OR x.closed_at > p_known)
                LIMIT p_most) e) o
    )
    SELECT r.scope, r.entity_id, r.hops, r.edge_id, r.confidence, r.subject_id, d.out_degree, r.truncated
    FROM reached r JOIN degrees d ON d.scope = r.scope AND d.subject_id = r.subject_id;
END
$$;
