-- Issues a tombstone for an entity, given by name or id, in these scopes (NULL: all): hides it, its names, its facts,
-- the facts that point to it, their edges, the notes that mention it, the documents that name it and the objects that
-- are bound to it or name it, in one transaction with an audit event. With p_named, notes and objects that only name it
-- in their text count as mentioning it. An erasure that a legal hold forbids is refused.
CREATE OR REPLACE FUNCTION issue_tombstone(
    p_id uuid, p_entity json, p_scopes text[], p_reason text, p_hold boolean, p_erase boolean, p_erase_at timestamptz,
    p_named boolean, p_key text, p_job uuid)
RETURNS TABLE (refused text, entity_id uuid, canonical text, candidates uuid[], other uuid, created_at timestamptz,
               facts_hidden bigint, notes_hidden bigint, objects_hidden bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_found record;
    v_entity graph_entities;
    v_other uuid;
    v_facts uuid[];
    v_notes uuid[];
    v_objects uuid[];
    v_relationships uuid[];
    v_now timestamptz;
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RAISE EXCEPTION 'issue_tombstone needs tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;
    -- One tombstone at a time in a project: each depends on all others.
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR NO KEY UPDATE;
    SELECT r.entity_id, r.candidates INTO v_found FROM resolve_entities(v_tenant, v_project, p_entity) r;
    IF v_found.entity_id IS NULL THEN
        RETURN QUERY SELECT CASE WHEN v_found.candidates IS NULL THEN 'entity_not_found' ELSE 'entity_ambiguous' END,
                            NULL::uuid, NULL::text, v_found.candidates, NULL::uuid, NULL::timestamptz, NULL::bigint,
                            NULL::bigint, NULL::bigint;
        RETURN;
    END IF;
    -- Writers about it finish first; later ones see that it is hidden.
    SELECT e.* INTO v_entity FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id = v_found.entity_id FOR UPDATE;
    IF NOT FOUND OR v_entity.merged_into IS NOT NULL THEN
        RAISE EXCEPTION 'the entity was merged or erased meanwhile' USING ERRCODE = '40001';
    END IF;
    v_other := find_active_tombstone(v_tenant, v_entity.entity_id, p_scopes, p_hold, p_erase);
    IF v_other IS NOT NULL THEN
        RETURN QUERY SELECT 'tombstone_already_exists', v_entity.entity_id, v_entity.canonical, NULL::uuid[], v_other,
                            NULL::timestamptz, NULL::bigint, NULL::bigint, NULL::bigint;
        RETURN;
    END IF;
    IF p_named THEN
        PERFORM link_mentions(v_tenant, v_project, v_entity.entity_id, p_scopes);
    END IF;
    IF p_erase THEN
        PERFORM link_holds(v_tenant, v_project);
        SELECT d.facts, d.notes INTO v_facts, v_notes
        FROM find_covered(v_tenant, v_project, v_entity.entity_id, p_scopes) d;
        SELECT d.objects, d.relationships INTO v_objects, v_relationships
        FROM find_covered_objects(v_tenant, v_entity.entity_id, p_scopes) d;
        v_other := coalesce(find_hold(v_tenant, v_project, v_entity.entity_id, p_scopes, v_facts, v_notes),
                            find_object_hold(v_tenant, v_objects, v_relationships));
        IF v_other IS NOT NULL THEN
            RETURN QUERY SELECT 'erasure_blocked', v_entity.entity_id, v_entity.canonical, NULL::uuid[], v_other,
                                NULL::timestamptz, NULL::bigint, NULL::bigint, NULL::bigint;
            RETURN;
        END IF;
    END IF;
    v_now := clock_timestamp();
    INSERT INTO tombstones (
        tenant_id, tombstone_id, project_id, entity_id, entity, scopes, reason, created_by, key_id, created_at,
        legal_hold, erase, erase_at, named)
    VALUES (v_tenant, p_id, v_project, v_entity.entity_id, v_entity.canonical, p_scopes, p_reason, v_agent, p_key,
            v_now, p_hold, p_erase, p_erase_at, p_named);
    PERFORM hide_or_restore_entity(v_tenant, v_project, v_agent, v_entity.entity_id);
    SELECT d.facts, d.notes INTO v_facts, v_notes
    FROM find_covered(v_tenant, v_project, v_entity.entity_id, p_scopes) d;
    SELECT d.objects, d.relationships INTO v_objects, v_relationships
    FROM find_covered_objects(v_tenant, v_entity.entity_id, p_scopes) d;
    PERFORM drop_stored_responses(
        v_tenant, v_entity.entity_id, v_notes,
        v_notes || v_facts || v_objects || v_relationships || v_entity.entity_id);
    PERFORM recount_terms(v_tenant, v_project);
    PERFORM record_event('tombstone_issued', p_key, jsonb_build_object(
        'tombstone_id', p_id, 'entity_id', v_entity.entity_id, 'legal_hold', p_hold, 'erase', p_erase));
    IF p_erase THEN
        -- Without a project, so that agents of the project cannot see the job.
        INSERT INTO jobs (tenant_id, job_id, agent_id, kind, payload, dedupe_key, priority, created_by, available_at,
                          created_at)
        VALUES (v_tenant, p_job, v_agent, 'erase',
                jsonb_build_object('tombstone_id', p_id, 'project_id', v_project), p_id::text, 5, p_key, p_erase_at,
                v_now);
    END IF;
    IF p_hold THEN
        PERFORM record_event('rtbf_legal_hold_issued', p_key, jsonb_build_object(
            'tombstone_id', p_id, 'entity_id', v_entity.entity_id));
    END IF;
    RETURN QUERY SELECT NULL::text, v_entity.entity_id, v_entity.canonical, NULL::uuid[], NULL::uuid, v_now,
                        cardinality(v_facts)::bigint, cardinality(v_notes)::bigint, cardinality(v_objects)::bigint;
END
$$;
