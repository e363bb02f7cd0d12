-- Changes cardinality or status of a predicate. To become single and active its timelines must have no overlaps: it is
-- refused with the overlapping facts that the caller can see, or with p_resolve each value ends where the next one
-- starts.
-- The lock on the predicate's row excludes all writers by it, so that their subjects need no locks.
CREATE OR REPLACE FUNCTION configure_predicate(p_predicate uuid, p_cardinality text, p_status text, p_resolve boolean,
                                               p_key text DEFAULT '')
RETURNS TABLE (refused text, now_status text, now_cardinality text, timelines bigint, open_facts uuid[])
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
    v_old graph_predicates;
    v_status text;
    v_cardinality text;
    v_timelines bigint;
    v_open uuid[];
    v_now timestamptz;
BEGIN
    SELECT p.* INTO v_old FROM graph_predicates p
    WHERE p.tenant_id = v_tenant AND p.predicate_id = p_predicate
      AND (p.project_id IS NULL OR p.project_id = v_project)
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'predicate_not_found', NULL::text, NULL::text, NULL::bigint, NULL::uuid[];
        RETURN;
    END IF;
    v_status := coalesce(p_status, v_old.status);
    v_cardinality := coalesce(p_cardinality, v_old.cardinality);
    IF v_old.global THEN
        RETURN QUERY SELECT 'predicate_global', v_old.status, v_old.cardinality, NULL::bigint, NULL::uuid[];
        RETURN;
    END IF;
    IF v_status <> v_old.status AND v_old.status <> 'pending'
       AND NOT (v_old.status = 'active' AND v_status = 'deprecated') THEN
        RETURN QUERY SELECT 'predicate_transition', v_old.status, v_old.cardinality, NULL::bigint, NULL::uuid[];
        RETURN;
    END IF;
    IF v_old.status = 'deprecated' AND v_cardinality <> v_old.cardinality THEN
        RETURN QUERY SELECT 'predicate_deprecated', v_old.status, v_old.cardinality, NULL::bigint, NULL::uuid[];
        RETURN;
    END IF;
    v_now := clock_timestamp();

    IF v_status = 'active' AND v_cardinality = 'single'
       AND (v_old.status <> 'active' OR v_old.cardinality <> 'single') THEN
        WITH live AS (
            SELECT f.*, lead(f.valid_from) OVER timeline AS next_from, lag(f.valid_until) OVER timeline AS last_until
            FROM graph_facts f
            WHERE f.tenant_id = v_tenant AND f.predicate_id = p_predicate AND f.retracted_at IS NULL
              AND f.suppression = 0
            WINDOW timeline AS (PARTITION BY f.project_id, f.scope, f.owner_key, f.subject_entity_id
                                ORDER BY f.valid_from, f.created_at, f.fact_id)
        )
        SELECT count(DISTINCT (f.project_id, f.scope, f.owner_key, f.subject_entity_id))
                   FILTER (WHERE f.valid_until > f.next_from),
               (array_agg(f.fact_id ORDER BY f.valid_from, f.fact_id) FILTER (
                   WHERE f.project_id = v_project
                     AND is_visible(f.scope, f.agent_id, f.garden_id, f.user_id, v_agent, v_gardens,
                                    v_user)))[1:50]
        INTO v_timelines, v_open
        FROM live f WHERE f.valid_until > f.next_from OR f.last_until > f.valid_from;
        IF v_timelines > 0 AND NOT p_resolve THEN
            RETURN QUERY SELECT 'predicate_values_open', v_old.status, v_old.cardinality, v_timelines,
                                coalesce(v_open, '{}');
            RETURN;
        END IF;
        IF v_timelines > 0 THEN
            PERFORM order_timelines(v_tenant, v_agent, p_predicate, v_now);
        END IF;
        UPDATE graph_facts f SET single_valued = true
        WHERE f.tenant_id = v_tenant AND f.predicate_id = p_predicate AND f.valid_to IS NULL
          AND f.retracted_at IS NULL AND NOT f.single_valued;
    ELSIF v_old.status = 'active' AND v_old.cardinality = 'single' AND v_cardinality = 'multi' THEN
        UPDATE graph_facts f SET single_valued = false
        WHERE f.tenant_id = v_tenant AND f.predicate_id = p_predicate AND f.single_valued;
    END IF;
    IF v_old.status = 'pending' AND v_status = 'active' THEN
        -- Conflicts between values are resolved by the decision about cardinality.
        UPDATE fact_conflicts c
        SET status = 'resolved', resolved_by = v_agent, resolved_at = v_now,
            resolution_note = 'predicate activated as ' || v_cardinality
        FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.predicate_id = p_predicate
          AND c.tenant_id = v_tenant AND c.fact_b = f.fact_id AND c.status = 'open';
    END IF;
    UPDATE graph_predicates p SET status = v_status, cardinality = v_cardinality, updated_at = v_now
    WHERE p.tenant_id = v_tenant AND p.predicate_id = p_predicate;
    PERFORM record_event('admin_action', p_key, jsonb_build_object(
        'action', 'predicate_change', 'predicate_id', p_predicate, 'status', v_status, 'cardinality', v_cardinality,
        'timelines_settled', coalesce(v_timelines, 0)));
    RETURN QUERY SELECT NULL::text, v_status, v_cardinality, v_timelines, NULL::uuid[];
END
$$;
