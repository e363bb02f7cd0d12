-- Reserves a block of rate tokens for one process, so that requests are counted in memory and not in a row.
-- A minute is 30 slots of two seconds. A token is valid only in its slot, and the tokens granted in any 31 consecutive
-- slots never exceed the limit, so no window of 60 seconds contains more requests.
-- p_breach: record a breach in the audit log when nothing is left; callers ask for it at most once a minute.
CREATE OR REPLACE FUNCTION reserve_tokens(
    p_tenant text, p_key uuid, p_work text, p_limit int, p_requested int, p_returned int, p_returned_slot bigint,
    p_breach boolean)
RETURNS TABLE (granted int, slot bigint, slot_ends_ms int, retry_ms int)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_now_ms bigint;
    v_slot bigint;
    v_slots bigint[];
    v_counts int[];
    v_used int;
BEGIN
    PERFORM set_scope(p_tenant, '', '', NULL, '');
    INSERT INTO rate_windows (tenant_id, key_id, work, slots, counts)
    VALUES (p_tenant, p_key, p_work, '{}', '{}') ON CONFLICT DO NOTHING;
    SELECT w.slots, w.counts INTO v_slots, v_counts FROM rate_windows w
    WHERE w.tenant_id = p_tenant AND w.key_id = p_key AND w.work = p_work FOR UPDATE;
    -- Read after the lock: slots are granted in the order of this clock.
    v_now_ms := floor(extract(epoch FROM clock_timestamp()) * 1000);
    v_slot := v_now_ms / 2000;

    SELECT coalesce(array_agg(s.slot ORDER BY s.slot), '{}'), coalesce(array_agg(s.remaining ORDER BY s.slot), '{}'),
           coalesce(sum(s.remaining), 0)
    INTO v_slots, v_counts, v_used
    FROM (SELECT u.slot, u.count - CASE WHEN u.slot = p_returned_slot THEN least(p_returned, u.count) ELSE 0 END
                 AS remaining
          FROM unnest(v_slots, v_counts) AS u (slot, count)) s
    WHERE s.slot > v_slot - 31 AND s.remaining > 0;

    granted := greatest(0, least(p_requested, p_limit - v_used));
    IF granted > 0 THEN
        IF v_slots[cardinality(v_slots)] = v_slot THEN
            v_counts[cardinality(v_counts)] := v_counts[cardinality(v_counts)] + granted;
        ELSE
            v_slots := v_slots || v_slot;
            v_counts := v_counts || granted;
        END IF;
    END IF;
    IF granted = 0 AND p_breach THEN
        PERFORM record_event('quota_breach', p_key::text, jsonb_build_object('work', p_work, 'limit', p_limit));
    END IF;
    UPDATE rate_windows w SET slots = v_slots, counts = v_counts
    WHERE w.tenant_id = p_tenant AND w.key_id = p_key AND w.work = p_work;

    slot := v_slot;
    slot_ends_ms := (v_slot + 1) * 2000 - v_now_ms;
    retry_ms := CASE WHEN granted > 0 THEN 0
                     ELSE greatest(1, (coalesce(v_slots[1], v_slot) + 31) * 2000 - v_now_ms) END;
    RETURN NEXT;
END
$$;
