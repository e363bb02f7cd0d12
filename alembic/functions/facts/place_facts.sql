-- Puts drafts where they belong and answers what came of each. The writer holds the locks of their timelines.
-- A belief is (scope, owner, subject, predicate, object); its live facts never overlap. Asserted again, what is held
-- already is confirmed, and what is new of its time is added: before it as another fact, after it by moving its end.
-- Where the predicate is single and active (mode 2) all values share one timeline: the value before ends where the new
-- one starts, the new one ends where the next one starts, an equal start replaces. Where it is pending, a second value
-- in words (mode 1) is kept and the conflict recorded.
-- What a tombstone hides stands apart: it neither moves nor is moved, until it is restored (see hide_or_restore_facts).
-- Each lookup asks for an order that only one index has, and sorting is off: which index is best cannot be told from
-- statistics while a table is young, and its plan outlives that.
-- Runs with the rights of its caller, who is write_facts.
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
    v_held uuid;
    v_confidence double precision;
    v_moment timestamptz;
    v_all fact_step[] := '{}';
    v_language regconfig := project_language(p_tenant, p_project);
BEGIN
    SELECT max(d.turn) INTO v_turns FROM unnest(p_drafts) d;
    FOR v_number IN 1 .. v_turns LOOP
        IF v_turns = 1 THEN
            v_turn := p_drafts;
        ELSE
            SELECT array_agg(d) INTO v_turn FROM unnest(p_drafts) d WHERE d.turn = v_number;
        END IF;

        -- What stands at the draft's place: the same belief, another value, the next one after it.
        SELECT array_agg(ROW(
            d.idx, coalesce(same.fact_id, d.fact_id), same.fact_id IS NULL,
            least(coalesce(d.valid_to, 'infinity'), next.valid_from), same.valid_until,
            other.fact_id, other.valid_from, next.fact_id,
            d.mode <> 2 AND d.timed AND next.valid_until < coalesce(d.valid_to, 'infinity'))::fact_step)
        INTO v_steps
        FROM unnest(v_turn) d
        LEFT JOIN LATERAL (
            SELECT x.fact_id, x.valid_until FROM (
                SELECT f.fact_id, f.valid_until FROM graph_facts f
                WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.subject_entity_id = d.subject_id
                  AND f.predicate_id = d.predicate_id AND f.object_hash BETWEEN d.object_hash AND d.object_hash
                  AND f.valid_from <= d.valid_from
                  AND f.scope = d.scope AND f.owner_key = d.owner_key AND f.retracted_at IS NULL
                  AND f.suppression = 0 AND d.suppression = 0
                ORDER BY f.object_hash DESC, f.valid_from DESC LIMIT 1
            ) x WHERE x.valid_until > d.valid_from
        ) same ON true
        LEFT JOIN LATERAL (
            SELECT x.* FROM (
                SELECT f.fact_id, f.valid_from, f.valid_to, f.valid_until, f.object_hash FROM graph_facts f
                WHERE d.mode = 2 AND f.tenant_id = p_tenant AND f.project_id = p_project
                  AND f.subject_entity_id = d.subject_id AND f.predicate_id = d.predicate_id
                  AND f.valid_from <= d.valid_from
                  AND f.scope = d.scope AND f.owner_key = d.owner_key AND f.retracted_at IS NULL
                  AND f.suppression = 0 AND d.suppression = 0
                ORDER BY f.valid_from DESC LIMIT 1
            ) x WHERE x.valid_until > d.valid_from AND x.object_hash <> d.object_hash
        ) other ON true
        LEFT JOIN LATERAL (
            SELECT f.fact_id, f.valid_from, f.valid_until FROM graph_facts f
            WHERE d.mode = 2 AND f.tenant_id = p_tenant AND f.project_id = p_project
              AND f.subject_entity_id = d.subject_id AND f.predicate_id = d.predicate_id
              AND f.valid_from > d.valid_from
              AND f.scope = d.scope AND f.owner_key = d.owner_key AND f.retracted_at IS NULL
                  AND f.suppression = 0 AND d.suppression = 0
            ORDER BY f.valid_from LIMIT 1
        ) next_value ON true
        LEFT JOIN LATERAL (
            SELECT f.fact_id, f.valid_from, f.valid_until FROM graph_facts f
            WHERE d.mode <> 2 AND f.tenant_id = p_tenant AND f.project_id = p_project
              AND f.subject_entity_id = d.subject_id AND f.predicate_id = d.predicate_id
              AND f.object_hash BETWEEN d.object_hash AND d.object_hash AND f.valid_from > d.valid_from
              AND f.scope = d.scope AND f.owner_key = d.owner_key AND f.retracted_at IS NULL
                  AND f.suppression = 0 AND d.suppression = 0
            ORDER BY f.object_hash, f.valid_from LIMIT 1
        ) next_same ON true
        CROSS JOIN LATERAL (
            SELECT coalesce(next_value.fact_id, next_same.fact_id) AS fact_id,
                   coalesce(next_value.valid_from, next_same.valid_from) AS valid_from,
                   coalesce(next_value.valid_until, next_same.valid_until) AS valid_until
        ) next;

        -- What is about to change is held, and must still be in sight.
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

        -- The value before: ended where the new one starts, or taken back where both start at once.
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

        INSERT INTO graph_facts (
            tenant_id, fact_id, project_id, agent_id, scope, garden_id, owner_key, subject_entity_id, predicate,
            predicate_id, object_entity_id, object_value, object_hash, value_type, confidence, source, source_trust,
            fact_hash, hlc, single_valued, suppression, valid_from, valid_to, created_at, updated_at, closed_at, terms)
        SELECT p_tenant, d.fact_id, p_project, p_agent, d.scope, d.garden_id, d.owner_key, d.subject_id, d.predicate,
               d.predicate_id, d.object_id, p_values[d.s], d.object_hash, d.value_type, d.confidence, d.source,
               d.source_trust,
               hash_fact(d.confidence, s.canonical_norm, p.canonical, d.scope, d.source, d.valid_from,
                         CASE WHEN d.object_id IS NULL THEN d.value_type ELSE 'ref' END,
                         CASE WHEN d.object_id IS NULL THEN p_jsons[d.s] ELSE to_json(o.canonical_norm)::text END),
               d.hlc, d.mode = 2, d.suppression, d.valid_from, nullif(w.ends, 'infinity'), d.created_at, d.created_at,
               CASE WHEN w.ends < 'infinity' THEN d.created_at END,
               fact_terms(v_language, s.canonical, p.canonical, coalesce(o.canonical, p_values[d.s]))
        FROM unnest(v_steps) w
        JOIN unnest(v_turn) d ON d.idx = w.idx
        CROSS JOIN LATERAL (
            SELECT e.canonical, e.canonical_norm FROM graph_entities e
            WHERE e.tenant_id = p_tenant AND e.entity_id = d.subject_id OFFSET 0
        ) s
        CROSS JOIN LATERAL (
            SELECT p.canonical FROM graph_predicates p
            WHERE p.tenant_id = p_tenant AND p.predicate_id = d.predicate_id OFFSET 0
        ) p
        LEFT JOIN LATERAL (
            SELECT e.canonical, e.canonical_norm FROM graph_entities e
            WHERE e.tenant_id = p_tenant AND e.entity_id = d.object_id OFFSET 0
        ) o ON true
        WHERE w.is_new;

        INSERT INTO entity_edges (
            tenant_id, edge_id, project_id, agent_id, scope, garden_id, owner_key, subject_entity_id, predicate_id,
            object_entity_id, confidence, source_trust, valid_from, valid_to, created_at, closed_at, suppression)
        SELECT p_tenant, d.fact_id, p_project, p_agent, d.scope, d.garden_id, d.owner_key, d.subject_id,
               d.predicate_id, d.object_id, d.confidence, d.source_trust, d.valid_from, nullif(w.ends, 'infinity'),
               d.created_at, CASE WHEN w.ends < 'infinity' THEN d.created_at END, d.suppression
        FROM unnest(v_steps) w JOIN unnest(v_turn) d ON d.idx = w.idx
        WHERE w.is_new AND d.object_id IS NOT NULL;

        -- The chain of a timeline: from what was there to the new one, from the new one to what comes next.
        INSERT INTO graph_fact_supersessions (
            tenant_id, project_id, supersession_id, from_fact_id, to_fact_id, note_id, effective_at, created_at)
        SELECT p_tenant, p_project, make_id(), x.older, x.newer, d.note_id, x.at, d.created_at
        FROM unnest(v_steps) w
        JOIN unnest(v_turn) d ON d.idx = w.idx
        CROSS JOIN LATERAL (
            VALUES (w.other_id, w.fact_id, d.valid_from),
                   (w.fact_id, CASE WHEN d.mode = 2 AND w.ends IS DISTINCT FROM d.valid_to THEN w.next_id END, w.ends)
        ) x(older, newer, at)
        WHERE w.is_new AND x.older IS NOT NULL AND x.newer IS NOT NULL
        ON CONFLICT DO NOTHING;

        -- Said again: one more mention, the running mean of confidence, and perhaps a later end.
        IF EXISTS (SELECT FROM unnest(v_steps) w WHERE NOT w.is_new) THEN
            FOR v_held, v_confidence, v_moment IN
                SELECT w.fact_id, d.confidence, d.created_at
                FROM unnest(v_steps) w JOIN unnest(v_turn) d ON d.idx = w.idx WHERE NOT w.is_new
            LOOP
                SELECT least(1, (f.confidence * f.mentions + v_confidence) / (f.mentions + 1)) INTO v_confidence
                FROM graph_facts f
                WHERE f.tenant_id = p_tenant AND f.fact_id = v_held AND f.retracted_at IS NULL;
                IF NOT FOUND THEN
                    RAISE EXCEPTION 'a fact was taken back while it was confirmed' USING ERRCODE = '40001';
                END IF;
                PERFORM set_confidence(p_tenant, p_project, v_held, v_confidence, v_moment, 1, false);
            END LOOP;
            PERFORM set_ends(p_tenant, p_project, array_agg(w.fact_id), array_agg(w.ends), array_agg(d.created_at))
            FROM unnest(v_steps) w JOIN unnest(v_turn) d ON d.idx = w.idx
            WHERE NOT w.is_new AND d.timed AND w.ends > w.held_until;
        END IF;
        IF EXISTS (SELECT FROM unnest(v_steps) w WHERE w.stretches) THEN
            -- The draft reaches over later facts of its belief: each of those lasts until the one after it.
            PERFORM set_ends(p_tenant, p_project, array_agg(x.fact_id), array_agg(x.ends), array_agg(x.at)),
                    record_conflicts(p_tenant, p_project, array_agg(x.fact_id) FILTER (WHERE x.mode = 1),
                                   array_agg(x.at) FILTER (WHERE x.mode = 1))
            FROM (
                SELECT f.fact_id, f.valid_until, d.mode, d.created_at AS at,
                       least(coalesce(d.valid_to, 'infinity'),
                             lead(f.valid_from) OVER (PARTITION BY d.idx ORDER BY f.valid_from)) AS ends
                FROM unnest(v_steps) w
                JOIN unnest(v_turn) d ON d.idx = w.idx
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

        PERFORM record_conflicts(p_tenant, p_project, array_agg(w.fact_id), array_agg(d.created_at))
        FROM unnest(v_steps) w JOIN unnest(v_turn) d ON d.idx = w.idx
        WHERE d.mode = 1;
        v_all := v_all || v_steps;
    END LOOP;

    IF json_array_length(p_evidence) > 0 THEN
        -- A note that is being hidden is waited for, and then there is no such note.
        PERFORM FROM (SELECT DISTINCT v.note_id FROM json_to_recordset(p_evidence) AS v(idx int, note_id uuid)
                      JOIN unnest(v_all) w ON w.idx = v.idx ORDER BY v.note_id) v
        LEFT JOIN LATERAL (
            SELECT n.suppression FROM memory_notes n
            WHERE n.tenant_id = p_tenant AND n.note_id = v.note_id FOR SHARE) n ON true
        WHERE n.suppression IS DISTINCT FROM 0;
        IF FOUND THEN
            RAISE EXCEPTION 'a note was hidden while it was cited' USING ERRCODE = '40001';
        END IF;
        INSERT INTO graph_fact_evidence (tenant_id, project_id, evidence_id, fact_id, note_id, created_at, suppression)
        SELECT p_tenant, p_project, make_id(), w.fact_id, v.note_id, min(d.created_at), min(d.suppression)
        FROM json_to_recordset(p_evidence) AS v(idx int, note_id uuid)
        JOIN unnest(v_all) w ON w.idx = v.idx
        JOIN unnest(p_drafts) d ON d.idx = v.idx
        GROUP BY w.fact_id, v.note_id
        ON CONFLICT (tenant_id, fact_id, note_id) DO NOTHING;
        INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at)
        SELECT DISTINCT ON (v.note_id, x.entity_id) p_tenant, p_project, v.note_id, x.entity_id, d.created_at
        FROM json_to_recordset(p_evidence) AS v(idx int, note_id uuid)
        JOIN unnest(p_drafts) d ON d.idx = v.idx
        CROSS JOIN LATERAL (VALUES (d.subject_id), (d.object_id)) x(entity_id)
        WHERE x.entity_id IS NOT NULL AND d.suppression = 0
        ORDER BY v.note_id, x.entity_id
        ON CONFLICT (tenant_id, note_id, entity_id) DO UPDATE SET by_name = false
        WHERE note_entity_mentions.by_name;
    END IF;
    IF json_array_length(p_derived) > 0 THEN
        -- What a fact came from is fixed when it is made.
        INSERT INTO fact_derivations (tenant_id, project_id, fact_id, source_hash, created_at, suppression)
        SELECT DISTINCT p_tenant, p_project, w.fact_id, decode(v.hash, 'hex'), d.created_at, d.suppression
        FROM json_to_recordset(p_derived) AS v(idx int, hash text)
        JOIN unnest(v_all) w ON w.idx = v.idx AND w.is_new
        JOIN unnest(p_drafts) d ON d.idx = v.idx
        ON CONFLICT DO NOTHING;
    END IF;
    PERFORM queue_units(p_tenant, p_project, 'fact', ARRAY(
        SELECT w.fact_id FROM unnest(v_all) w JOIN unnest(p_drafts) d ON d.idx = w.idx
        WHERE w.is_new AND d.suppression = 0));
    RETURN v_all;
END
$$;
