-- Applies the decay policies of a project: retracts facts older than their policy allows as `decayed`, or lowers
-- confidence by half-life since the fact was last written or its confidence changed. At most p_limit facts after
-- p_after, in the order of their ids; p_dry only reports. Hidden facts are left as they are, since a legal hold
-- preserves them.
CREATE OR REPLACE FUNCTION sweep_decay(p_now timestamptz, p_dry boolean, p_after uuid, p_limit int)
RETURNS TABLE (fact_id uuid, policy_id uuid, action text, before double precision, after double precision)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_due record;
    v_fact graph_facts;
    v_skipped boolean := false;
BEGIN
    FOR v_due IN
        SELECT d.* FROM find_decayed(v_tenant, v_project, p_now, p_after) d ORDER BY d.fact_id LIMIT p_limit
    LOOP
        IF NOT p_dry AND v_due.mode <> 'dry_run' THEN
            PERFORM FROM graph_predicates p
            WHERE p.tenant_id = v_tenant AND p.predicate_id = v_due.predicate_id FOR KEY SHARE;
            PERFORM FROM graph_entities e
            WHERE e.tenant_id = v_tenant AND e.entity_id = v_due.subject_entity_id FOR NO KEY UPDATE;
            SELECT f.* INTO v_fact FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = v_due.fact_id
            FOR UPDATE;
            -- Written again, retracted or hidden meanwhile: no longer due.
            v_skipped := v_fact.retracted_at IS NOT NULL OR v_fact.suppression <> 0
                         OR v_fact.confidence <> v_due.confidence
                         OR coalesce(v_fact.weighed_at, v_fact.created_at) > p_now;
            IF v_skipped THEN
                NULL;
            ELSIF v_due.act = 'retract' THEN
                PERFORM mark_retracted(v_tenant, v_project, v_agent, ARRAY[v_due.fact_id], 'decayed', NULL,
                                  ARRAY[clock_timestamp()]);
            ELSE
                PERFORM set_confidence(v_tenant, v_project, v_due.fact_id, v_due.fallen, clock_timestamp(), 0, true);
            END IF;
        END IF;
        fact_id := v_due.fact_id;
        policy_id := v_due.policy_id;
        action := CASE WHEN v_skipped THEN 'skipped' WHEN v_due.mode = 'dry_run' THEN 'dry_run' ELSE v_due.act END;
        before := v_due.confidence;
        after := CASE v_due.act WHEN 'retract' THEN 0 ELSE v_due.fallen END;
        RETURN NEXT;
    END LOOP;
END
$$;
