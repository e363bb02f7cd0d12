-- Retracts facts the caller can see: by id, or all of a subject, a predicate and a scope.
-- A fact whose notes are deleted is retracted for good, so that recovering them does not restore it.
-- In a garden only its writers may do this (p_admin: the caller is an administrator, who may everywhere).
CREATE OR REPLACE FUNCTION retract_facts(
    p_facts uuid[], p_subject uuid, p_predicate uuid, p_scope text, p_reason text, p_admin boolean,
    p_key text DEFAULT '')
RETURNS TABLE (fact_id uuid, refused text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_gardens uuid[] := coalesce(nullif(current_setting('app.gardens', true), '')::uuid[], '{}');
    v_user text := current_setting('app.user_id', true);
    v_facts uuid[];
    v_refused uuid[];
    v_subjects uuid[];
    v_suspended uuid[];
    v_now timestamptz;
BEGIN
    SELECT array_agg(f.fact_id) FILTER (WHERE g.writes), array_agg(f.fact_id) FILTER (WHERE NOT g.writes)
    INTO v_facts, v_refused
    FROM graph_facts f
    CROSS JOIN LATERAL (
        SELECT is_own_row(f.user_id, v_user) AND (f.garden_id IS NULL OR p_admin OR EXISTS (
            SELECT FROM garden_members m WHERE m.tenant_id = v_tenant AND m.garden_id = f.garden_id
              AND m.agent_id = v_agent AND m.role IN ('admin', 'writer'))) AS writes
    ) g
    WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.suppression = 0
      AND (p_facts IS NULL OR f.fact_id = ANY (p_facts))
      AND (p_facts IS NOT NULL OR (f.subject_entity_id = p_subject AND f.predicate_id = p_predicate
                                   AND f.scope = p_scope
                                   AND (f.retracted_at IS NULL OR suspended_facts(v_tenant, ARRAY[f.fact_id]) <> '{}')))
      AND is_visible(f.scope, f.agent_id, f.garden_id, f.user_id, v_agent, v_gardens, v_user);
    PERFORM FROM graph_predicates p
    WHERE p.tenant_id = v_tenant AND p.predicate_id IN (
        SELECT f.predicate_id FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts))
    ORDER BY p.predicate_id FOR KEY SHARE;
    v_subjects := ARRAY(
        SELECT f.subject_entity_id FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts));
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id = ANY (v_subjects)
    ORDER BY e.entity_id FOR NO KEY UPDATE;
    PERFORM FROM (SELECT f.fact_id, f.suppression, f.subject_entity_id FROM graph_facts f
                  WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts) ORDER BY f.fact_id FOR UPDATE) f
    WHERE f.subject_entity_id <> ALL (v_subjects) OR f.suppression > 0;
    IF FOUND THEN
        RAISE EXCEPTION 'a subject was merged, or a fact hidden, meanwhile' USING ERRCODE = '40001';
    END IF;
    v_suspended := suspended_facts(v_tenant, v_facts);
    v_now := clock_timestamp();
    INSERT INTO fact_retractions (
        tenant_id, project_id, retraction_id, fact_id, agent_id, scope, garden_id, kind, reason, retracted_by,
        confidence_before, retracted_at, user_id)
    SELECT v_tenant, v_project, make_id(), f.fact_id, f.agent_id, f.scope, f.garden_id, 'retracted', p_reason, v_agent,
           f.confidence, v_now, f.user_id
    FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_suspended);
    PERFORM mark_retracted(v_tenant, v_project, v_agent, array_agg(f.fact_id), 'retracted', p_reason,
                      array_agg(v_now))
    FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts) AND f.retracted_at IS NULL;
    PERFORM record_event('fact_write', p_key, jsonb_build_object('action', 'retract', 'fact_ids', jsonb_agg(f.fact_id)))
    FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts)
      AND (f.retracted_at = v_now OR f.fact_id = ANY (v_suspended))
    HAVING count(*) > 0;
    RETURN QUERY
    SELECT f.fact_id,
           CASE WHEN f.retracted_at < v_now AND f.fact_id <> ALL (v_suspended) THEN 'already_retracted' END
    FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts)
    UNION ALL
    SELECT f.fact_id, CASE WHEN is_own_row(f.user_id, v_user) THEN 'garden_forbidden' ELSE 'shared_read_only' END
    FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_refused);
END
$$;
