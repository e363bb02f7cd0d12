-- Return the live objects that ids of objects or of their versions name; with p_time only those in effect then, with
-- p_as_of as they were recorded then. An id that names none has no row. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_roots(
    p_tenant text, p_branches uuid[], p_ids uuid[], p_time timestamptz, p_as_of timestamptz)
RETURNS TABLE (given_id uuid, canonical_id uuid)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
BEGIN
    IF p_as_of IS NOT NULL THEN
        RETURN QUERY
        SELECT n.version_id, x.canonical_id
        FROM graph_object_versions n
        CROSS JOIN LATERAL (
            SELECT v.canonical_id, v.deleted_at, v.effective_from, v.effective_to FROM graph_object_versions v
            WHERE v.tenant_id = p_tenant AND v.branch_id = ANY (p_branches) AND v.canonical_id = n.canonical_id
              AND v.created_at <= p_as_of
            ORDER BY v.version DESC LIMIT 1
        ) x
        WHERE n.tenant_id = p_tenant AND n.version_id = ANY (p_ids) AND x.deleted_at IS NULL
          AND (p_time IS NULL
               OR (coalesce(x.effective_from <= p_time, true) AND coalesce(x.effective_to > p_time, true)));
        RETURN;
    END IF;
    RETURN QUERY
    -- The canonical id is computed before the lookup: under a policy an index serves no expression that might leak.
    SELECT c.given_id, h.canonical_id
    FROM (
        SELECT g.id AS given_id, coalesce(v.canonical_id, g.id) AS id FROM unnest(p_ids) g(id)
        LEFT JOIN LATERAL (
            SELECT v.canonical_id FROM graph_object_versions v
            WHERE v.tenant_id = p_tenant AND v.version_id = g.id OFFSET 0
        ) v ON true
        OFFSET 0
    ) c
    CROSS JOIN LATERAL (
        SELECT x.canonical_id FROM graph_objects x
        WHERE x.tenant_id = p_tenant AND x.branch_id = ANY (p_branches) AND x.canonical_id = c.id
          AND x.deleted_at IS NULL
          AND (p_time IS NULL
               OR (coalesce(x.effective_from <= p_time, true) AND coalesce(x.effective_to > p_time, true)))
        OFFSET 0
    ) h;
END
$$;
