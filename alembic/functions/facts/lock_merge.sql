-- Locks two entities, the predicates of their facts and the subjects of facts that point to them, so that their
-- timelines cannot change. Returns why they cannot be merged, or NULL. Runs with the rights of merge_entities.
CREATE OR REPLACE FUNCTION lock_merge(p_tenant text, p_project text, p_from uuid, p_into uuid)
RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_names int;
    v_owners int;
    v_user text := current_setting('app.user_id', true);
    v_predicates uuid[];
BEGIN
    -- Merges can run concurrently with each other, but not with a tombstone.
    PERFORM FROM projects p WHERE p.tenant_id = p_tenant AND p.project_id = p_project FOR SHARE;
    SELECT count(*), count(DISTINCT e.user_id) INTO v_names, v_owners FROM graph_entities e
    WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.entity_id IN (p_from, p_into) AND e.suppression = 0
      AND is_own_row(e.user_id, v_user);
    IF p_from = p_into OR v_names < 2 THEN
        RETURN CASE WHEN p_from = p_into THEN 'same_entity' ELSE 'entity_not_found' END;
    END IF;
    IF v_owners > 1 THEN
        -- The names of one user would become those of another, or of all.
        RETURN 'different_users';
    END IF;
    -- Writers by these predicates finish first; then nobody can write about either entity.
    v_predicates := ARRAY(
        SELECT DISTINCT f.predicate_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project
          AND (f.subject_entity_id IN (p_from, p_into) OR f.object_entity_id IN (p_from, p_into)));
    PERFORM FROM graph_predicates p
    WHERE p.tenant_id = p_tenant AND p.predicate_id = ANY (v_predicates)
    ORDER BY p.predicate_id FOR KEY SHARE;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = p_tenant AND e.entity_id IN (p_from, p_into) ORDER BY e.entity_id FOR UPDATE;
    IF EXISTS (SELECT FROM graph_entities e
               WHERE e.tenant_id = p_tenant AND e.entity_id IN (p_from, p_into) AND e.suppression > 0) THEN
        RETURN 'entity_not_found';
    END IF;
    IF EXISTS (SELECT FROM graph_entities e
               WHERE e.tenant_id = p_tenant AND e.entity_id IN (p_from, p_into) AND e.merged_into IS NOT NULL) THEN
        RETURN 'entity_merged';
    END IF;
    IF EXISTS (SELECT FROM graph_facts f
               WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.predicate_id <> ALL (v_predicates)
                 AND (f.subject_entity_id IN (p_from, p_into) OR f.object_entity_id IN (p_from, p_into))) THEN
        RAISE EXCEPTION 'a fact with another predicate was written meanwhile' USING ERRCODE = '40001';
    END IF;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = p_tenant AND e.entity_id IN (
        SELECT f.subject_entity_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.object_entity_id IN (p_from, p_into))
    ORDER BY e.entity_id FOR NO KEY UPDATE;
    RETURN NULL;
END
$$;
