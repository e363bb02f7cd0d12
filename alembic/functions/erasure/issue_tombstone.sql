-- Issues a tombstone for an entity, given by name or id, in these scopes (NULL: all): hides it, its names, its facts,
-- the facts that point to it, their edges, the notes that mention it, the documents that name it and the objects that
-- are bound to it or name it, in one transaction with an audit event. A name that is no entity becomes one, so that an
-- author or somebody who is only named in texts can be hidden. With p_named, notes and objects that only name it in
-- their text count as mentioning it; `possible` has notes that may. An erasure that a legal hold forbids is refused;
-- the same request as for an active tombstone returns that one.
CREATE OR REPLACE FUNCTION issue_tombstone(
    p_id uuid, p_entity json, p_scopes text[], p_reason text, p_hold boolean, p_erase boolean, p_grace int,
    p_named boolean, p_key text, p_job uuid)
RETURNS TABLE (refused text, tombstone_id uuid, job_id uuid, candidates uuid[], other uuid, facts_hidden bigint,
               notes_hidden bigint, objects_hidden bigint, possible uuid[])
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
    v_id uuid := p_id;
    v_same boolean;
    v_covered record;
    v_linked record;
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RAISE EXCEPTION 'issue_tombstone needs tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;
    -- One tombstone at a time in a project: each depends on all others.
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR NO KEY UPDATE;
    SELECT r.entity_id, r.state, r.candidates INTO v_found FROM resolve_entities(v_tenant, v_project, p_entity) r;
    IF v_found.state = 'absent' THEN
        v_found.entity_id := (make_entities(v_tenant, v_project, p_entity, ARRAY[NULL::uuid], ARRAY[1]))[1];
    ELSIF v_found.entity_id IS NULL THEN
        refused := CASE WHEN v_found.candidates IS NULL THEN 'entity_not_found' ELSE 'entity_ambiguous' END;
        candidates := v_found.candidates;
        RETURN NEXT;
        RETURN;
    END IF;
    -- Writers about it finish first; later ones see that it is hidden.
    SELECT e.* INTO v_entity FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id = v_found.entity_id FOR UPDATE;
    IF NOT FOUND OR v_entity.merged_into IS NOT NULL THEN
        RAISE EXCEPTION 'the entity was merged or erased meanwhile' USING ERRCODE = '40001';
    END IF;
    other := find_active_tombstone(v_tenant, v_entity.entity_id, p_scopes, p_hold, p_erase);
    v_same := EXISTS (
        SELECT FROM tombstones t
        WHERE t.tenant_id = v_tenant AND t.tombstone_id = other AND t.scopes IS NOT DISTINCT FROM p_scopes
          AND t.reason = p_reason AND t.erase = p_erase AND t.named = p_named
          AND (NOT p_erase OR t.erase_at = t.created_at + make_interval(secs => p_grace)));
    IF v_same THEN
        v_id := other;
    ELSIF other IS NOT NULL THEN
        refused := 'tombstone_already_exists';
        RETURN NEXT;
        RETURN;
    END IF;
    IF p_named AND v_same THEN
        SELECT n.possible INTO possible
        FROM find_named_notes(v_tenant, v_project, v_entity.entity_id, p_scopes, false) n;
    ELSIF p_named THEN
        possible := link_mentions(v_tenant, v_project, v_entity.entity_id, p_scopes);
    END IF;
    IF p_erase AND NOT v_same THEN
        PERFORM link_holds(v_tenant, v_project);
        SELECT d.* INTO v_covered FROM find_covered(v_tenant, v_project, v_entity.entity_id, p_scopes) d;
        SELECT d.* INTO v_linked FROM find_covered_objects(v_tenant, v_entity.entity_id, p_scopes) d;
        other := coalesce(
            find_hold(v_tenant, v_project, v_entity.entity_id, p_scopes, v_covered.facts, v_covered.notes),
            find_object_hold(v_tenant, v_linked.objects, v_linked.relationships));
        IF other IS NOT NULL THEN
            refused := 'erasure_blocked';
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    IF NOT v_same THEN
        INSERT INTO tombstones (
            tenant_id, tombstone_id, project_id, entity_id, entity, scopes, reason, created_by, key_id, created_at,
            legal_hold, erase, erase_at, named)
        SELECT v_tenant, p_id, v_project, v_entity.entity_id, v_entity.canonical, p_scopes, p_reason, v_agent, p_key,
               c.now, p_hold, p_erase, CASE WHEN p_erase THEN c.now + make_interval(secs => p_grace) END, p_named
        FROM clock_timestamp() c(now);
        PERFORM hide_or_restore_entity(v_tenant, v_project, v_agent, v_entity.entity_id);
    END IF;
    SELECT d.* INTO v_covered FROM find_covered(v_tenant, v_project, v_entity.entity_id, p_scopes) d;
    SELECT d.* INTO v_linked FROM find_covered_objects(v_tenant, v_entity.entity_id, p_scopes) d;
    IF NOT v_same THEN
        PERFORM finish_tombstone(v_tenant, v_id, p_job, v_covered.facts, v_covered.notes,
                                 v_linked.objects || v_linked.relationships);
    END IF;
    other := NULL;
    RETURN QUERY
    SELECT CASE WHEN v_same THEN 'repeated' END, v_id,
           CASE WHEN NOT p_erase THEN NULL WHEN NOT v_same THEN p_job ELSE (
               SELECT j.job_id FROM jobs j
               WHERE j.tenant_id = v_tenant AND j.kind = 'erase' AND j.dedupe_key = v_id::text LIMIT 1) END,
           NULL::uuid[], NULL::uuid, cardinality(v_covered.facts)::bigint, cardinality(v_covered.notes)::bigint,
           cardinality(v_linked.objects)::bigint, possible;
END
$$;
