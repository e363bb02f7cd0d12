-- Returns the edges from and to one entity as recorded at p_known (NULL: now), see edges_now and edges_as_of. Plain SQL
-- without settings, so that it is inlined; only one half runs.
CREATE OR REPLACE FUNCTION edges_of(
    p_tenant text, p_project text, p_scope text, p_entity uuid, p_out boolean, p_in boolean, p_relations uuid[],
    p_confidence double precision, p_trust double precision, p_effective double precision, p_valid timestamptz,
    p_known timestamptz, p_limit bigint)
RETURNS TABLE (entity_id uuid, edge_id uuid, confidence double precision, pick bigint)
LANGUAGE sql STABLE
AS $$
    SELECT x.* FROM edges_now(
        p_tenant, p_project, p_scope, p_entity, p_out, p_in, p_relations, p_confidence, p_trust, p_effective, p_valid,
        p_limit) x
    WHERE p_known IS NULL
    UNION ALL
    SELECT x.* FROM edges_as_of(
        p_tenant, p_project, p_scope, p_entity, p_out, p_in, p_relations, p_confidence, p_trust, p_effective, p_valid,
        p_known, p_limit) x
    WHERE p_known IS NOT NULL
$$;
