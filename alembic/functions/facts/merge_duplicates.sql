-- Merges those of these facts that say the same about overlapping times, and puts their timelines in order, as if
-- p_from were p_into already: before two entities are merged, or before hidden facts are restored (then both are NULL).
-- Returns how many facts were merged. Runs with the rights of its caller, who holds the locks.
CREATE OR REPLACE FUNCTION merge_duplicates(
    p_tenant text, p_project text, p_agent text, p_facts uuid[], p_from uuid, p_into uuid,
    p_now timestamptz)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_fact record;
    -- The previous fact of the same timeline.
    v_line bigint := 0;
    v_held uuid;
    v_object bytea;
    v_from timestamptz;
    v_was timestamptz;
    v_until timestamptz;
    v_folded bigint := 0;
BEGIN
    FOR v_fact IN
        WITH touched AS (
            SELECT f.*, CASE f.subject_entity_id WHEN p_from THEN p_into ELSE f.subject_entity_id END AS subject,
                   CASE f.object_entity_id WHEN p_from THEN sha256(uuid_send(p_into)) ELSE f.object_hash END AS object,
                   p.status <> 'pending' AND p.cardinality = 'single' AS one_value
            FROM graph_facts f
            JOIN graph_predicates p ON p.tenant_id = p_tenant AND p.predicate_id = f.predicate_id
            WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts) AND f.retracted_at IS NULL
        )
        SELECT t.fact_id, t.valid_from, t.valid_until, t.object, t.one_value, t.confidence, t.mentions,
               dense_rank() OVER (ORDER BY t.scope, t.owner_key, t.subject, t.predicate_id,
                                  CASE WHEN NOT t.one_value THEN t.object END) AS line
        FROM touched t ORDER BY line, t.valid_from, t.created_at, t.fact_id
    LOOP
        IF v_line = v_fact.line THEN
            IF v_fact.object = v_object AND v_fact.valid_from < v_until THEN
                v_until := greatest(v_until, v_fact.valid_until);
                v_folded := v_folded + 1;
                INSERT INTO graph_fact_evidence (
                    tenant_id, project_id, evidence_id, fact_id, note_id, created_at, suppression)
                SELECT p_tenant, p_project, make_id(), v_held, v.note_id, v.created_at, v.suppression
                FROM graph_fact_evidence v WHERE v.tenant_id = p_tenant AND v.fact_id = v_fact.fact_id
                ON CONFLICT (tenant_id, fact_id, note_id) DO NOTHING;
                PERFORM set_confidence(p_tenant, p_project, v_held,
                                   least(1, (f.confidence * f.mentions + v_fact.confidence * v_fact.mentions)
                                            / (f.mentions + v_fact.mentions)), p_now, v_fact.mentions, false)
                FROM graph_facts f WHERE f.tenant_id = p_tenant AND f.fact_id = v_held;
                PERFORM mark_retracted(p_tenant, p_project, p_agent, ARRAY[v_fact.fact_id], 'merged', NULL,
                                       ARRAY[p_now]);
                INSERT INTO graph_fact_supersessions (
                    tenant_id, project_id, supersession_id, from_fact_id, to_fact_id, note_id, effective_at, created_at)
                VALUES (p_tenant, p_project, make_id(), v_fact.fact_id, v_held, NULL, v_fact.valid_from, p_now)
                ON CONFLICT DO NOTHING;
                CONTINUE;
            END IF;
            IF v_fact.one_value AND v_until > v_fact.valid_from THEN
                IF v_from = v_fact.valid_from THEN
                    PERFORM mark_retracted(p_tenant, p_project, p_agent, ARRAY[v_held], 'corrected', NULL,
                                      ARRAY[p_now]);
                    v_until := v_was;
                ELSE
                    v_until := v_fact.valid_from;
                END IF;
                INSERT INTO graph_fact_supersessions (
                    tenant_id, project_id, supersession_id, from_fact_id, to_fact_id, note_id, effective_at, created_at)
                VALUES (p_tenant, p_project, make_id(), v_held, v_fact.fact_id, NULL, v_fact.valid_from, p_now)
                ON CONFLICT DO NOTHING;
            END IF;
        END IF;
        IF v_until <> v_was THEN
            PERFORM set_ends(p_tenant, p_project, ARRAY[v_held], ARRAY[v_until], ARRAY[p_now]);
        END IF;
        v_line := v_fact.line;
        v_held := v_fact.fact_id;
        v_object := v_fact.object;
        v_from := v_fact.valid_from;
        v_was := v_fact.valid_until;
        v_until := v_fact.valid_until;
    END LOOP;
    IF v_until <> v_was THEN
        PERFORM set_ends(p_tenant, p_project, ARRAY[v_held], ARRAY[v_until], ARRAY[p_now]);
    END IF;
    RETURN v_folded;
END
$$;
