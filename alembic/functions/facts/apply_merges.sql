-- Writes what merge_duplicates decided, all steps at once. A step is of a kind: a fact is `merged` into the other one, which
-- gets its evidence and this confidence and mentions; or the other one takes its place from p_times on, `superseded`, or
-- `corrected` where both start at once. Planned for each call, by the number of steps. Runs with the rights of its
-- caller.
CREATE OR REPLACE FUNCTION apply_merges(
    p_tenant text, p_project text, p_agent text, p_now timestamptz, p_kinds text[], p_facts uuid[], p_others uuid[],
    p_times timestamptz[], p_confidences double precision[], p_mentions int[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
BEGIN
    IF cardinality(p_facts) = 0 THEN
        RETURN;
    END IF;
    INSERT INTO graph_fact_evidence (
        tenant_id, project_id, evidence_id, fact_id, note_id, created_at, suppression, user_id)
    SELECT p_tenant, p_project, make_id(), u.other_id, v.note_id, v.created_at, v.suppression, v.user_id
    FROM unnest(p_kinds, p_facts, p_others) u(kind, fact_id, other_id)
    JOIN graph_fact_evidence v ON v.tenant_id = p_tenant AND v.fact_id = u.fact_id
    WHERE u.kind = 'merged'
    ON CONFLICT (tenant_id, fact_id, note_id) DO NOTHING;
    -- The last step of a fact has its final confidence.
    PERFORM set_confidences(p_tenant, p_project, array_agg(x.other_id), array_agg(x.confidence), array_agg(x.mentions),
                            p_now)
    FROM (
        SELECT DISTINCT ON (u.other_id) u.other_id, u.confidence, u.mentions
        FROM unnest(p_kinds, p_others, p_confidences, p_mentions) WITH ORDINALITY
            u(kind, other_id, confidence, mentions, place)
        WHERE u.kind = 'merged' ORDER BY u.other_id, u.place DESC
    ) x;
    PERFORM mark_retracted(p_tenant, p_project, p_agent, array_agg(u.fact_id), u.kind, NULL, array_agg(p_now))
    FROM unnest(p_kinds, p_facts) u(kind, fact_id)
    WHERE u.kind IN ('merged', 'corrected') GROUP BY u.kind;
    INSERT INTO graph_fact_supersessions (
        tenant_id, project_id, supersession_id, from_fact_id, to_fact_id, note_id, effective_at, created_at, user_id)
    SELECT p_tenant, p_project, make_id(), u.fact_id, u.other_id, NULL, u.effective_at, p_now, f.user_id
    FROM unnest(p_facts, p_others, p_times) u(fact_id, other_id, effective_at)
    JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_id = u.fact_id
    ON CONFLICT DO NOTHING;
END
$$;
