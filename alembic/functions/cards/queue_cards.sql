-- Queues the cards that tell of these facts to be made anew, one job for each entity, unless one is open. An entity
-- without a card gets none: the first who asks for it does. Answers how many jobs were made.
-- Of the owner, since cards of private facts are among them.
CREATE OR REPLACE FUNCTION queue_cards(p_facts uuid[])
RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_count int;
BEGIN
    INSERT INTO jobs (tenant_id, job_id, project_id, kind, payload, dedupe_key, created_by, available_at, created_at)
    SELECT v_tenant, make_id(), v_project, 'card_refresh', jsonb_build_object('entity_id', x.entity_id),
           x.entity_id::text, 'service', v_now, v_now
    FROM (
        SELECT DISTINCT c.entity_id FROM memory_cards c
        WHERE c.tenant_id = v_tenant AND c.card_id = ANY (cards_telling(v_tenant, v_project, p_facts))
        ORDER BY c.entity_id
    ) x
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;
