-- Resolves a conflict the caller can see: the winner (one of the two, or a third fact with the new value) gets
-- confidence 1, the others are retracted, and the winner records that it `resolves` them. In a garden only its writers
-- may do this (p_admin: the caller is an administrator).
CREATE OR REPLACE FUNCTION resolve_conflict(
    p_conflict uuid, p_winner uuid, p_note text, p_key text, p_admin boolean)
RETURNS TABLE (refused text, losers uuid[])
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
    v_conflict fact_conflicts;
    v_one graph_facts;
    v_winner graph_facts;
    v_losers uuid[];
    v_now timestamptz;
BEGIN
    SELECT c.* INTO v_conflict FROM fact_conflicts c
    WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.conflict_id = p_conflict AND c.suppression = 0;
    SELECT f.* INTO v_one FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.fact_id = v_conflict.fact_a
      AND is_visible(f.scope, f.agent_id, f.garden_id, f.user_id, v_agent, v_gardens, v_user);
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'conflict_not_found', NULL::uuid[];
        RETURN;
    END IF;
    IF v_one.garden_id IS NOT NULL AND NOT p_admin AND NOT EXISTS (
        SELECT FROM garden_members m WHERE m.tenant_id = v_tenant AND m.garden_id = v_one.garden_id
          AND m.agent_id = v_agent AND m.role IN ('admin', 'writer')) THEN
        RETURN QUERY SELECT 'garden_forbidden', NULL::uuid[];
        RETURN;
    END IF;
    IF NOT is_own_row(v_one.user_id, v_user) THEN
        RETURN QUERY SELECT 'shared_read_only', NULL::uuid[];
        RETURN;
    END IF;
    PERFORM FROM graph_predicates p
    WHERE p.tenant_id = v_tenant AND p.predicate_id = v_one.predicate_id FOR KEY SHARE;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id = v_one.subject_entity_id FOR NO KEY UPDATE;
    SELECT c.* INTO v_conflict FROM fact_conflicts c
    WHERE c.tenant_id = v_tenant AND c.conflict_id = p_conflict FOR UPDATE;
    PERFORM FROM (SELECT f.suppression FROM graph_facts f
                  WHERE f.tenant_id = v_tenant AND f.fact_id IN (v_conflict.fact_a, v_conflict.fact_b, p_winner)
                  ORDER BY f.fact_id FOR UPDATE) f
    WHERE f.suppression > 0;
    IF FOUND THEN
        RAISE EXCEPTION 'a fact was hidden meanwhile' USING ERRCODE = '40001';
    END IF;
    IF v_conflict.status = 'resolved' THEN
        RETURN QUERY SELECT 'conflict_already_resolved', NULL::uuid[];
        RETURN;
    END IF;
    SELECT f.* INTO v_winner FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.fact_id = p_winner AND f.retracted_at IS NULL
      AND f.subject_entity_id = v_one.subject_entity_id AND f.predicate_id = v_one.predicate_id
      AND f.scope = v_one.scope AND f.owner_key = v_one.owner_key;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'winner_invalid', NULL::uuid[];
        RETURN;
    END IF;
    v_now := clock_timestamp();
    v_losers := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.fact_id IN (v_conflict.fact_a, v_conflict.fact_b)
          AND f.fact_id <> p_winner AND f.retracted_at IS NULL ORDER BY f.fact_id);
    -- The value that was written to resolve this makes no new conflict.
    DELETE FROM fact_conflicts c
    WHERE c.tenant_id = v_tenant AND v_winner.created_at >= now() AND c.conflict_id <> p_conflict
      AND c.fact_b = p_winner AND c.fact_a = ANY (v_losers);
    PERFORM set_confidence(v_tenant, v_project, p_winner, 1.0, v_now, 0, false);
    INSERT INTO fact_derivations (tenant_id, project_id, fact_id, source_hash, kind, created_at, user_id)
    SELECT v_tenant, v_project, p_winner, f.fact_hash, 'resolves', v_now, v_one.user_id
    FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_losers)
    ON CONFLICT DO NOTHING;
    UPDATE fact_conflicts c
    SET status = 'resolved', resolved_by = v_agent, resolved_at = v_now, resolution_note = p_note, winner = p_winner
    WHERE c.tenant_id = v_tenant AND c.conflict_id = p_conflict;
    PERFORM mark_retracted(v_tenant, v_project, v_agent, v_losers, 'resolved', p_note,
                      array_fill(v_now, ARRAY[cardinality(v_losers)]));
    PERFORM record_event('fact_write', p_key, jsonb_build_object(
        'action', 'conflict_resolve', 'conflict_id', p_conflict, 'winner', p_winner, 'retracted', to_jsonb(v_losers)));
    RETURN QUERY SELECT NULL::text, v_losers;
END
$$;
