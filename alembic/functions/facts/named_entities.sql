-- Returns the entities that a name refers to, of those the caller may see: a canonical name precedes an alias, the names
-- of the caller's user precede those of all users, and these precede those of other users. A merged entity is the one it
-- was merged into. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION named_entities(p_tenant text, p_project text, p_norm text)
RETURNS SETOF uuid
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_user text := coalesce(current_setting('app.user_id', true), '');
    v_owner text;
BEGIN
    FOREACH v_owner IN ARRAY CASE v_user WHEN '*' THEN '{"",NULL}' WHEN '' THEN '{""}' ELSE ARRAY[v_user, ''] END LOOP
        RETURN QUERY
        SELECT coalesce(e.merged_into, e.entity_id) FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.canonical_norm = p_norm
          AND (v_owner IS NULL OR e.user_id = v_owner);
        IF FOUND THEN
            RETURN;
        END IF;
        RETURN QUERY
        SELECT DISTINCT a.entity_id FROM graph_entity_aliases a
        WHERE a.tenant_id = p_tenant AND a.project_id = p_project AND a.alias_norm = p_norm
          AND (v_owner IS NULL OR a.user_id = v_owner);
        IF FOUND THEN
            RETURN;
        END IF;
    END LOOP;
END
$$;
