-- Records the drafts of one turn that repeat a belief: one more mention, the running mean of confidence, and a later
-- end where the draft gives one. A draft that reaches over later facts of its belief extends each of those to the next.
-- Runs with the settings and rights of place_facts.
CREATE OR REPLACE FUNCTION confirm_facts(
    p_tenant text, p_project text, p_drafts fact_draft[], p_steps fact_step[])
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_fact uuid;
    v_confidence double precision;
    v_moment timestamptz;
BEGIN
    FOR v_fact, v_confidence, v_moment IN
        SELECT w.fact_id, d.confidence, d.created_at
        FROM unnest(p_steps) w JOIN unnest(p_drafts) d ON d.idx = w.idx WHERE NOT w.is_new
    LOOP
        SELECT least(1, (f.confidence * f.mentions + v_confidence) / (f.mentions + 1)) INTO v_confidence
        FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.fact_id = v_fact AND f.retracted_at IS NULL;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'a fact was retracted while it was confirmed' USING ERRCODE = '40001';
        END IF;
        PERFORM set_confidence(p_tenant, p_project, v_fact, v_confidence, v_moment, 1, false);
    END LOOP;
    PERFORM set_ends(p_tenant, p_project, array_agg(w.fact_id), array_agg(w.ends), array_agg(d.created_at))
    FROM unnest(p_steps) w JOIN unnest(p_drafts) d ON d.idx = w.idx
    WHERE NOT w.is_new AND d.timed AND w.ends > w.held_until;
    IF EXISTS (SELECT FROM unnest(p_steps) w WHERE w.stretches) THEN
        PERFORM set_ends(p_tenant, p_project, array_agg(x.fact_id), array_agg(x.ends), array_agg(x.at)),
                record_conflicts(p_tenant, p_project, array_agg(x.fact_id) FILTER (WHERE x.mode = 1),
                                 array_agg(x.at) FILTER (WHERE x.mode = 1))
        FROM (
            SELECT f.fact_id, f.valid_until, d.mode, d.created_at AS at,
                   least(coalesce(d.valid_to, 'infinity'),
                         lead(f.valid_from) OVER (PARTITION BY d.idx ORDER BY f.valid_from)) AS ends
            FROM unnest(p_steps) w
            JOIN unnest(p_drafts) d ON d.idx = w.idx
            CROSS JOIN LATERAL (
                SELECT f.fact_id, f.valid_from, f.valid_until FROM graph_facts f
                WHERE f.tenant_id = p_tenant AND f.project_id = p_project
                  AND f.subject_entity_id = d.subject_id AND f.predicate_id = d.predicate_id
                  AND f.object_hash = d.object_hash AND f.scope = d.scope AND f.owner_key = d.owner_key
                  AND f.retracted_at IS NULL AND f.suppression = 0 AND f.valid_from > d.valid_from
                OFFSET 0
            ) f
            WHERE w.stretches
        ) x WHERE x.ends > x.valid_until;
    END IF;
END
$$;
