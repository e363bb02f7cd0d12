-- Returns why two entities cannot be merged, or NULL, and how many facts a merge reads and writes: those about them and
-- those that point to them, counted up to p_most. Takes no locks: merge_entities checks again.
CREATE OR REPLACE FUNCTION measure_merge(p_from uuid, p_into uuid, p_most int)
RETURNS TABLE (refused text, facts bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_found int;
    v_gone int;
    v_owners int;
    v_user text := current_setting('app.user_id', true);
BEGIN
    SELECT count(*), count(e.merged_into), count(DISTINCT e.user_id) INTO v_found, v_gone, v_owners FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.entity_id IN (p_from, p_into) AND e.suppression = 0
      AND is_own_row(e.user_id, v_user);
    RETURN QUERY
    SELECT CASE WHEN p_from = p_into THEN 'same_entity' WHEN v_found < 2 THEN 'entity_not_found'
                WHEN v_gone > 0 THEN 'entity_merged' WHEN v_owners > 1 THEN 'different_users' END,
           (SELECT count(*) FROM (
               (SELECT FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.project_id = v_project
                  AND f.subject_entity_id IN (p_from, p_into) LIMIT p_most)
               UNION ALL
               (SELECT FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.project_id = v_project
                  AND f.object_entity_id IN (p_from, p_into) LIMIT p_most)
               LIMIT p_most) f);
END
$$;
