-- Returns the entities of other projects that have this canonical name and that a fact shared with the caller names.
-- Runs as the owner, since names of other projects are hidden; see present_shared_fact.
CREATE OR REPLACE FUNCTION shared_entities(p_norm text)
RETURNS SETOF uuid
LANGUAGE plpgsql STABLE STRICT SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
BEGIN
    IF v_project IS NULL OR current_setting('app.reach', true) IS DISTINCT FROM 'shared' THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT e.entity_id FROM projects p
    JOIN graph_entities e ON e.tenant_id = v_tenant AND e.project_id = p.project_id AND e.canonical_norm = p_norm
    WHERE p.tenant_id = v_tenant AND p.project_id <> v_project AND e.suppression = 0
      AND EXISTS (SELECT FROM graph_facts f
                  WHERE f.tenant_id = v_tenant AND e.entity_id IN (f.subject_entity_id, f.object_entity_id)
                    AND f.project_id = e.project_id AND is_shared(f.scope, f.garden_id, f.user_id, f.suppression));
END
$$;
