-- Merges those of these facts that say the same about overlapping times, and puts their timelines in order, as if
-- p_from were p_into already: before two entities are merged, or before hidden facts are restored (then both are NULL).
-- Decides fact by fact in the order of the timelines, and then writes everything at once (apply_merges).
-- Returns the facts that were merged into others. Runs with the rights of its caller, who holds the locks.
CREATE OR REPLACE FUNCTION merge_duplicates(
    p_tenant text, p_project text, p_agent text, p_facts uuid[], p_from uuid, p_into uuid,
    p_now timestamptz)
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_fact record;
    -- The previous fact of the same timeline, and what it will be.
    v_line bigint := 0;
    v_held uuid;
    v_object bytea;
    v_from timestamptz;
    v_was timestamptz;
    v_until timestamptz;
    v_confidence double precision;
    v_mentions int;
    -- What will be done, step by step; see apply_merges.
    v_kinds text[] := '{}';
    v_facts uuid[] := '{}';
    v_others uuid[] := '{}';
    v_times timestamptz[] := '{}';
    v_confidences double precision[] := '{}';
    v_counts int[] := '{}';
    v_ended uuid[] := '{}';
    v_ends timestamptz[] := '{}';
BEGIN
    FOR v_fact IN
        WITH touched AS (
            SELECT f.fact_id, f.valid_from, f.valid_until, f.created_at, f.confidence, f.mentions, f.scope, f.owner_key,
                   f.predicate_id, p.status <> 'pending' AND p.cardinality = 'single' AS one_value,
                   CASE f.subject_entity_id WHEN p_from THEN p_into ELSE f.subject_entity_id END AS subject,
                   CASE f.object_entity_id WHEN p_from THEN sha256(uuid_send(p_into)) ELSE f.object_hash END AS object
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
                v_confidence := least(1, (v_confidence * v_mentions + v_fact.confidence * v_fact.mentions)
                                         / (v_mentions + v_fact.mentions));
                v_mentions := v_mentions + v_fact.mentions;
                v_kinds := array_append(v_kinds, 'merged');
                v_facts := array_append(v_facts, v_fact.fact_id);
                v_others := array_append(v_others, v_held);
                v_times := array_append(v_times, v_fact.valid_from);
                v_confidences := array_append(v_confidences, v_confidence);
                v_counts := array_append(v_counts, v_mentions);
                CONTINUE;
            END IF;
            IF v_fact.one_value AND v_until > v_fact.valid_from THEN
                v_kinds := array_append(
                    v_kinds, CASE WHEN v_from = v_fact.valid_from THEN 'corrected' ELSE 'superseded' END);
                v_facts := array_append(v_facts, v_held);
                v_others := array_append(v_others, v_fact.fact_id);
                v_times := array_append(v_times, v_fact.valid_from);
                v_confidences := array_append(v_confidences, NULL);
                v_counts := array_append(v_counts, NULL);
                v_until := CASE WHEN v_from = v_fact.valid_from THEN v_was ELSE v_fact.valid_from END;
            END IF;
        END IF;
        IF v_until <> v_was THEN
            v_ended := array_append(v_ended, v_held);
            v_ends := array_append(v_ends, v_until);
        END IF;
        v_line := v_fact.line;
        v_held := v_fact.fact_id;
        v_object := v_fact.object;
        v_from := v_fact.valid_from;
        v_was := v_fact.valid_until;
        v_until := v_fact.valid_until;
        v_confidence := v_fact.confidence;
        v_mentions := v_fact.mentions;
    END LOOP;
    IF v_until <> v_was THEN
        v_ended := array_append(v_ended, v_held);
        v_ends := array_append(v_ends, v_until);
    END IF;
    PERFORM apply_merges(
        p_tenant, p_project, p_agent, p_now, v_kinds, v_facts, v_others, v_times, v_confidences, v_counts);
    -- After the retractions: an open fact may end only where no other one of its timeline is open.
    PERFORM set_ends(p_tenant, p_project, v_ended, v_ends, array_fill(p_now, ARRAY[cardinality(v_ended)]));
    RETURN ARRAY(SELECT u.fact_id FROM unnest(v_facts, v_kinds) u(fact_id, kind) WHERE u.kind = 'merged');
END
$$;
