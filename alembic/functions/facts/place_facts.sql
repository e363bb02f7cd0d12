-- Writes drafts to their timelines, which the caller has locked, and returns what became of each.
-- A belief is (scope, owner, subject, predicate, object); its live facts never overlap. Repeating a belief confirms the
-- facts that hold it and adds what is new of its time: before them as another fact, after them by moving the end.
-- If the predicate is single and active (mode 2), all values share one timeline: the previous value ends where the new
-- one starts, the new one ends where the next one starts, an equal start replaces. If it is pending, a second plain
-- value (mode 1) is kept and a conflict recorded.
-- A draft of confidence 0 retracts the fact it denies, before the others are placed.
-- Hidden facts are separate: they neither move others nor are moved until they are restored (hide_or_restore_facts).
-- Each lookup asks for an order that only one index has, and sorting is off: statistics of a young table cannot tell
-- which index is best, and the plan is kept when the table has grown. Runs with the rights of write_facts.
CREATE OR REPLACE FUNCTION place_facts(
    p_tenant text, p_project text, p_agent text, p_drafts fact_draft[], p_values text[],
    p_jsons text[], p_evidence json, p_derived json)
RETURNS fact_step[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_sort = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_turns int;
    v_turn fact_draft[];
    v_steps fact_step[];
    v_all fact_step[] := '{}';
    v_denied fact_step[] := '{}';
    v_language regconfig := project_language(p_tenant, p_project);
BEGIN
    IF EXISTS (SELECT FROM unnest(p_drafts) d WHERE d.confidence = 0) THEN
        v_denied := deny_facts(p_tenant, p_project, p_agent, p_drafts);
        SELECT array_agg(d ORDER BY d.idx) INTO p_drafts FROM unnest(p_drafts) d WHERE d.confidence > 0;
        IF p_drafts IS NULL THEN
            RETURN v_denied;
        END IF;
    END IF;
    SELECT max(d.turn) INTO v_turns FROM unnest(p_drafts) d;
    FOR v_number IN 1 .. v_turns LOOP
        IF v_turns = 1 THEN
            v_turn := p_drafts;
        ELSE
            SELECT array_agg(d) INTO v_turn FROM unnest(p_drafts) d WHERE d.turn = v_number;
        END IF;
        SELECT m.steps INTO v_steps FROM match_drafts(p_tenant, p_project, v_turn) m;

        -- Locks the facts about to change, which must still be visible.
        IF EXISTS (SELECT FROM unnest(v_steps) w WHERE NOT w.is_new OR w.other_id IS NOT NULL OR w.stretches) THEN
            PERFORM FROM unnest(v_steps) w
            CROSS JOIN LATERAL (VALUES (CASE WHEN NOT w.is_new THEN w.fact_id END), (w.other_id)) x(fact_id)
            CROSS JOIN LATERAL (
                SELECT f.suppression FROM graph_facts f
                WHERE f.tenant_id = p_tenant AND f.fact_id = x.fact_id FOR UPDATE) f
            WHERE f.suppression > 0;
            IF FOUND THEN
                RAISE EXCEPTION 'a fact was hidden while another was written' USING ERRCODE = '40001';
            END IF;
        END IF;

        -- The previous value ends where the new one starts, or is retracted where both start at once.
        IF EXISTS (SELECT FROM unnest(v_steps) w WHERE w.other_id IS NOT NULL) THEN
            PERFORM set_ends(p_tenant, p_project, array_agg(w.other_id), array_agg(d.valid_from),
                             array_agg(d.created_at))
            FROM unnest(v_steps) w JOIN unnest(v_turn) d ON d.idx = w.idx
            WHERE w.other_from < d.valid_from;
            PERFORM mark_retracted(p_tenant, p_project, p_agent, array_agg(w.other_id), 'corrected', NULL,
                                   array_agg(d.created_at))
            FROM unnest(v_steps) w JOIN unnest(v_turn) d ON d.idx = w.idx
            WHERE w.other_from = d.valid_from;
        END IF;
        PERFORM insert_facts(p_tenant, p_project, p_agent, v_turn, v_steps, p_values, p_jsons, v_language);
        IF EXISTS (SELECT FROM unnest(v_steps) w WHERE NOT w.is_new OR w.stretches) THEN
            PERFORM confirm_facts(p_tenant, p_project, v_turn, v_steps);
        END IF;
        PERFORM record_conflicts(p_tenant, p_project, array_agg(w.fact_id), array_agg(d.created_at))
        FROM unnest(v_steps) w JOIN unnest(v_turn) d ON d.idx = w.idx
        WHERE d.mode = 1;
        v_all := v_all || v_steps;
    END LOOP;

    IF json_array_length(p_evidence) > 0 THEN
        PERFORM insert_evidence(p_tenant, p_project, p_drafts, v_all, p_evidence);
    END IF;
    IF json_array_length(p_derived) > 0 THEN
        -- Only for new facts: derived_from never changes.
        INSERT INTO fact_derivations (tenant_id, project_id, fact_id, source_hash, created_at, suppression, user_id)
        SELECT DISTINCT p_tenant, p_project, w.fact_id, decode(v.hash, 'hex'), d.created_at, d.suppression, owner_user()
        FROM json_to_recordset(p_derived) AS v(idx int, hash text)
        JOIN unnest(v_all) w ON w.idx = v.idx AND w.is_new
        JOIN unnest(p_drafts) d ON d.idx = v.idx
        ON CONFLICT DO NOTHING;
    END IF;
    PERFORM queue_units(p_tenant, p_project, 'fact', ARRAY(
        SELECT w.fact_id FROM unnest(v_all) w JOIN unnest(p_drafts) d ON d.idx = w.idx
        WHERE w.is_new AND d.suppression = 0));
    RETURN v_all || v_denied;
END
$$;
