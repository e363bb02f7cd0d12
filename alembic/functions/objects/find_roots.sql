-- Which objects are meant by ids of objects or of any version of them: those that live, and at a time if one is given
-- are in effect then. An id that means nothing here has no row.
CREATE OR REPLACE FUNCTION find_roots(p_tenant text, p_branches uuid[], p_ids uuid[], p_time timestamptz)
RETURNS TABLE (asked uuid, canonical_id uuid)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    -- The id is settled before it is looked up: no index is used for an expression that might leak.
    SELECT m.asked, h.canonical_id
    FROM (
        SELECT a.id AS asked, coalesce(v.canonical_id, a.id) AS id FROM unnest(p_ids) a(id)
        LEFT JOIN LATERAL (
            SELECT v.canonical_id FROM graph_object_versions v
            WHERE v.tenant_id = p_tenant AND v.version_id = a.id OFFSET 0
        ) v ON true
        OFFSET 0
    ) m
    CROSS JOIN LATERAL (
        SELECT x.canonical_id FROM graph_objects x
        WHERE x.tenant_id = p_tenant AND x.branch_id = ANY (p_branches) AND x.canonical_id = m.id
          AND x.deleted_at IS NULL
          AND (p_time IS NULL
               OR (coalesce(x.effective_from <= p_time, true) AND coalesce(x.effective_to > p_time, true)))
        OFFSET 0
    ) h;
END
$$;
