-- Return the objects that the roots of an expansion name, the ids that name none, and why it cannot run: problem is
-- object_not_found, or type_unknown with the type as detail. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION check_expansion(
    p_tenant text, p_object_branches uuid[], p_relationship_branches uuid[], p_roots uuid[], p_steps jsonb,
    p_time timestamptz, p_as_of timestamptz,
    OUT problem text, OUT detail text, OUT missing text[], OUT roots uuid[])
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
BEGIN
    SELECT array_agg(DISTINCT f.canonical_id), array_agg(DISTINCT g.id::text) FILTER (WHERE f.given_id IS NULL)
    INTO roots, missing
    FROM unnest(p_roots) g(id)
    LEFT JOIN find_roots(p_tenant, p_object_branches, p_roots, p_time, p_as_of) f ON f.given_id = g.id;
    roots := array_remove(roots, NULL);
    IF cardinality(roots) = 0 OR roots IS NULL THEN
        problem := 'object_not_found';
        RETURN;
    END IF;
    detail := coalesce(
        find_unknown_type(p_tenant, p_object_branches, 'object', ARRAY(
            SELECT t.type FROM jsonb_array_elements(p_steps) s(step)
            CROSS JOIN LATERAL jsonb_array_elements_text(s.step -> 'node_types') t(type)), p_as_of IS NOT NULL),
        find_unknown_type(p_tenant, p_relationship_branches, 'relationship', ARRAY(
            SELECT t.type FROM jsonb_array_elements(p_steps) s(step)
            CROSS JOIN LATERAL jsonb_array_elements_text(s.step -> 'edge_types') t(type)), p_as_of IS NOT NULL));
    IF detail IS NOT NULL THEN
        problem := 'type_unknown';
    END IF;
END
$$;
