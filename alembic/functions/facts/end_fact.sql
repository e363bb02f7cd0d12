-- Sets the end of one fact the caller can see (NULL: open again), as far as its timeline allows.
CREATE OR REPLACE FUNCTION end_fact(p_fact uuid, p_valid_to timestamptz, p_admin boolean, p_key text DEFAULT '')
RETURNS TABLE (refused text, bound timestamptz)
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
    v_fact graph_facts;
    v_subject uuid;
    v_single boolean;
    v_pending boolean;
    v_now timestamptz;
    v_bound timestamptz;
BEGIN
    SELECT f.* INTO v_fact FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.fact_id = p_fact AND f.suppression = 0
      AND is_visible(f.scope, f.agent_id, f.garden_id, f.user_id, v_agent, v_gardens, v_user);
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'fact_not_found', NULL::timestamptz;
        RETURN;
    END IF;
    IF NOT is_own_row(v_fact.user_id, v_user) THEN
        RETURN QUERY SELECT 'shared_read_only', NULL::timestamptz;
        RETURN;
    END IF;
    IF v_fact.garden_id IS NOT NULL AND NOT p_admin AND NOT EXISTS (
        SELECT FROM garden_members m WHERE m.tenant_id = v_tenant AND m.garden_id = v_fact.garden_id
          AND m.agent_id = v_agent AND m.role IN ('admin', 'writer')) THEN
        RETURN QUERY SELECT 'garden_forbidden', NULL::timestamptz;
        RETURN;
    END IF;
    SELECT p.status <> 'pending' AND p.cardinality = 'single', p.status = 'pending' INTO v_single, v_pending
    FROM graph_predicates p
    WHERE p.tenant_id = v_tenant AND p.predicate_id = v_fact.predicate_id FOR KEY SHARE;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id = v_fact.subject_entity_id FOR NO KEY UPDATE;
    v_subject := v_fact.subject_entity_id;
    SELECT f.* INTO v_fact FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = p_fact FOR UPDATE;
    IF NOT FOUND OR v_fact.subject_entity_id <> v_subject OR v_fact.suppression > 0 THEN
        RAISE EXCEPTION 'the subject was merged or hidden meanwhile' USING ERRCODE = '40001';
    END IF;
    IF v_fact.retracted_at IS NOT NULL THEN
        RETURN QUERY SELECT 'already_retracted', NULL::timestamptz;
        RETURN;
    END IF;
    IF p_valid_to <= v_fact.valid_from THEN
        RETURN QUERY SELECT 'valid_to_too_early', v_fact.valid_from;
        RETURN;
    END IF;
    SELECT min(f.valid_from) INTO v_bound FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.subject_entity_id = v_fact.subject_entity_id
      AND f.predicate_id = v_fact.predicate_id AND f.valid_from > v_fact.valid_from AND f.scope = v_fact.scope
      AND f.owner_key = v_fact.owner_key AND f.retracted_at IS NULL AND f.suppression = 0
      AND (v_single OR f.object_hash = v_fact.object_hash);
    IF coalesce(p_valid_to, 'infinity') > v_bound THEN
        RETURN QUERY SELECT 'timeline_occupied', v_bound;
        RETURN;
    END IF;
    IF p_valid_to IS DISTINCT FROM v_fact.valid_to THEN
        v_now := clock_timestamp();
        -- An open fact enters the unique index of single-valued predicates.
        UPDATE graph_facts f SET single_valued = v_single
        WHERE f.tenant_id = v_tenant AND f.fact_id = p_fact AND f.single_valued <> v_single;
        PERFORM set_ends(v_tenant, v_project, ARRAY[p_fact], ARRAY[coalesce(p_valid_to, 'infinity')],
                          ARRAY[v_now]);
        PERFORM record_event('fact_write', p_key, jsonb_build_object(
            'action', 'end', 'fact_ids', jsonb_build_array(p_fact)));
        IF v_pending THEN
            PERFORM record_conflicts(v_tenant, v_project, ARRAY[p_fact], ARRAY[v_now]);
        END IF;
    END IF;
    RETURN QUERY SELECT NULL::text, v_bound;
END
$$;
