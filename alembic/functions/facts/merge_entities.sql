-- Merges two entities: facts, edges, mentions and aliases of p_from become those of p_into, which gets its name as an
-- alias; p_from stays as a pointer. Beliefs that are now the same become one fact with the evidence of both, and
-- timelines that are now one are put in order. One transaction, one audit event. Counts only facts that the caller can
-- see, so that nothing tells of those of others.
CREATE OR REPLACE FUNCTION merge_entities(p_from uuid, p_into uuid, p_key text)
RETURNS TABLE (refused text, facts_moved bigint, facts_folded bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_refused text;
    v_now timestamptz;
    v_gardens uuid[] := coalesce(nullif(current_setting('app.gardens', true), '')::uuid[], '{}');
    v_user text := current_setting('app.user_id', true);
    v_facts uuid[];
    v_merged uuid[];
    v_moved bigint;
    v_folded bigint;
BEGIN
    v_refused := lock_merge(v_tenant, v_project, p_from, p_into);
    IF v_refused IS NOT NULL THEN
        RETURN QUERY SELECT v_refused, 0::bigint, 0::bigint;
        RETURN;
    END IF;
    v_now := clock_timestamp();
    v_merged := merge_duplicates(
        v_tenant, v_project, v_agent, find_mergeable(v_tenant, v_project, p_from, p_into), p_from, p_into, v_now);
    v_facts := move_facts(v_tenant, v_project, p_from, p_into, v_now);
    SELECT count(*) INTO v_moved FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts) AND f.suppression = 0
      AND is_visible(f.scope, f.agent_id, f.garden_id, f.user_id, v_agent, v_gardens, v_user);
    SELECT count(*) INTO v_folded FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_merged)
      AND is_visible(f.scope, f.agent_id, f.garden_id, f.user_id, v_agent, v_gardens, v_user);
    PERFORM move_names(v_tenant, v_project, p_from, p_into, v_now);
    PERFORM move_mentions(v_tenant, p_from, p_into);
    PERFORM queue_units(v_tenant, v_project, 'fact', v_facts);
    PERFORM drop_cards(v_tenant, ARRAY(
        SELECT c.card_id FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.entity_id IN (p_from, p_into)));

    -- A tombstone of some scopes moves too: what it hides of one entity it now hides of both.
    IF EXISTS (SELECT FROM tombstones t WHERE t.tenant_id = v_tenant AND t.entity_id IN (p_from, p_into)) THEN
        UPDATE tombstones t SET entity_id = p_into WHERE t.tenant_id = v_tenant AND t.entity_id = p_from;
        PERFORM hide_or_restore_entity(v_tenant, v_project, v_agent, p_into);
    END IF;
    -- Moved facts may be hidden by their objects, and then so are the rows that this merge wrote about them.
    PERFORM hide_or_restore_facts(v_tenant, v_project, v_agent, ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.suppression > 0
          AND (f.subject_entity_id = p_into OR f.object_entity_id = p_into)));
    IF EXISTS (SELECT FROM tombstones t WHERE t.tenant_id = v_tenant AND t.entity_id = p_into) THEN
        PERFORM recount_terms(v_tenant, v_project);
    END IF;

    PERFORM record_event('admin_action', p_key, jsonb_build_object(
        'action', 'entity_merge', 'from', p_from, 'into', p_into, 'facts_moved', v_moved, 'facts_folded', v_folded));
    RETURN QUERY SELECT NULL::text, v_moved, v_folded;
END
$$;
