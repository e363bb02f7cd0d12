-- Hides or restores an entity as its active tombstones demand, with its names, every fact about it or pointing to it,
-- the notes that mention it, the documents that name it and the objects bound to it or naming it. The levels are
-- computed from all tombstones, so that revoking one restores exactly what no other one hides.
-- Runs with the rights of its caller, who has locked the entity.
CREATE OR REPLACE FUNCTION hide_or_restore_entity(p_tenant text, p_project text, p_agent text, p_entity uuid)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    v_all text[] := ARRAY['agent_private', 'project_shared', 'org_shared', 'public'];
    v_erased text[];
    v_held text[];
    v_level smallint;
    v_decoy uuid := make_id();
BEGIN
    SELECT array_agg(DISTINCT u.scope) FILTER (WHERE NOT t.legal_hold),
           array_agg(DISTINCT u.scope) FILTER (WHERE t.legal_hold)
    INTO v_erased, v_held
    FROM tombstones t CROSS JOIN LATERAL unnest(coalesce(t.scopes, v_all)) u(scope)
    WHERE t.tenant_id = p_tenant AND t.entity_id = p_entity AND t.erased_at IS NULL AND NOT EXISTS (
        SELECT FROM tombstone_revocations r WHERE r.tenant_id = p_tenant AND r.tombstone_id = t.tombstone_id);
    -- Its name stays visible as long as it is visible in any scope.
    v_level := CASE WHEN v_erased @> v_all THEN 1
                    WHEN coalesce(v_erased, '{}') || coalesce(v_held, '{}') @> v_all THEN 2 ELSE 0 END;
    UPDATE graph_entities e
    SET erased_scopes = v_erased, held_scopes = v_held, suppression = v_level,
        decoy_id = CASE WHEN v_level > 0 THEN coalesce(e.decoy_id, v_decoy) END
    WHERE e.tenant_id = p_tenant AND e.entity_id IN (
        SELECT p_entity UNION ALL
        SELECT m.entity_id FROM graph_entities m WHERE m.tenant_id = p_tenant AND m.merged_into = p_entity);
    UPDATE graph_entity_aliases a SET suppression = v_level
    WHERE a.tenant_id = p_tenant AND a.entity_id = p_entity AND a.suppression <> v_level;
    PERFORM hide_or_restore_facts(p_tenant, p_project, p_agent, ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.subject_entity_id = p_entity
        UNION
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.object_entity_id = p_entity
        UNION
        SELECT m.fact_id FROM graph_fact_mentions m WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity));
    PERFORM hide_or_restore_notes(p_tenant, p_agent, ARRAY(
        SELECT m.note_id FROM note_entity_mentions m WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity));
    PERFORM hide_or_restore_documents(p_tenant, ARRAY(
        SELECT m.document_id FROM document_entity_mentions m
        WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity));
    PERFORM hide_or_restore_objects(p_tenant, ARRAY(
        SELECT m.canonical_id FROM object_entity_mentions m WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity
        UNION
        SELECT e.object_canonical_id FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND (e.entity_id = p_entity OR e.merged_into = p_entity)
          AND e.object_canonical_id IS NOT NULL));
END
$$;
