-- Returns the entities that names or ids refer to in this scope: a user's own names precede those of all users.
-- Runs with the rights of its caller: readers find what they may see, definer functions everything.
CREATE OR REPLACE FUNCTION resolve_entities(p_tenant text, p_project text, p_names json)
RETURNS TABLE (ref int, entity_id uuid, state text, candidates uuid[])
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_user text := owner_user();
BEGIN
    IF v_user = '' THEN
        RETURN QUERY SELECT r.* FROM resolve_owned(p_tenant, p_project, p_names, '') r;
        RETURN;
    END IF;
    RETURN QUERY
    WITH own AS MATERIALIZED (
        SELECT r.* FROM resolve_owned(p_tenant, p_project, p_names, v_user) r
    ), shared AS MATERIALIZED (
        SELECT r.* FROM resolve_owned(p_tenant, p_project, p_names, '') r
        WHERE EXISTS (SELECT FROM own o WHERE o.state = 'absent')
    )
    SELECT o.ref, s.entity_id, s.state, s.candidates FROM own o JOIN shared s ON s.ref = o.ref
    WHERE o.state = 'absent'
    UNION ALL
    SELECT o.* FROM own o WHERE o.state <> 'absent';
END
$$;
