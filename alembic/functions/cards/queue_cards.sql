-- Queues a rebuild of the cards that show these facts, one job for each entity that has a card and no open job; returns
-- how many. Runs as the owner, since cards of private facts are included.
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
        WHERE c.tenant_id = v_tenant AND c.card_id = ANY (cards_of_facts(v_tenant, v_project, p_facts))
        ORDER BY c.entity_id
    ) x
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;
