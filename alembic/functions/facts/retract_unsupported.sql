-- Retracts, with kind note_deleted, the facts that cite one of these deleted notes and no live one, and drops the cards
-- that show them; restore_supported undoes it. Returns the facts. Runs with the rights of delete_notes.
CREATE OR REPLACE FUNCTION retract_unsupported(
    p_tenant text, p_project text, p_agent text, p_key text, p_notes uuid[], p_reason text)
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_facts uuid[] := unsupported_facts(p_tenant, p_notes);
    v_found uuid[];
    v_now timestamptz;
BEGIN
    IF cardinality(v_facts) = 0 THEN
        RETURN v_facts;
    END IF;
    PERFORM lock_facts(p_tenant, v_facts);
    -- Somebody may have cited a live note while this waited for the locks.
    v_found := unsupported_facts(p_tenant, p_notes);
    IF NOT v_found <@ v_facts THEN
        RAISE EXCEPTION 'a deleted note was cited meanwhile' USING ERRCODE = '40001';
    END IF;
    IF cardinality(v_found) = 0 THEN
        RETURN v_found;
    END IF;
    v_now := clock_timestamp();
    PERFORM mark_retracted(p_tenant, p_project, p_agent, v_found, 'note_deleted', p_reason,
                           array_fill(v_now, ARRAY[cardinality(v_found)]));
    PERFORM drop_cards(p_tenant, cards_of_facts(p_tenant, p_project, v_found));
    PERFORM record_event('fact_write', p_key, jsonb_build_object('action', 'retract', 'fact_ids', to_jsonb(v_found)));
    RETURN v_found;
END
$$;
