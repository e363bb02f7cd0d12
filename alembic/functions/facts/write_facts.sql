-- Writes facts, one or a thousand, in one call: resolves or makes the entities and predicates they name, and puts each
-- where it belongs. Answers a row for each, in order. When one is refused and p_atomic, nothing is written.
-- About what a tombstone hides: an administrator is refused; for an agent the fact is born hidden, and the answer is
-- that of a name nobody ever used. One line in the audit log, unless p_key is NULL:
-- then the caller writes it.
-- Of the owner, because what a policy hides still counts here; the scope comes from the settings and from nowhere else.
-- OFFSET 0 keeps a join a lookup: a plan made while the tables were small would read them whole for ever after.
-- Locks, in this order: new names and kinds, predicates (against a change of cardinality), subjects by id, objects.
CREATE OR REPLACE FUNCTION write_facts(
    p_entities json, p_predicates json, p_facts json, p_evidence json, p_derived json, p_atomic boolean,
    p_key text DEFAULT '', p_admin boolean DEFAULT false)
RETURNS TABLE (
    idx int, refused text, field text, candidates uuid[], outcome text, superseded uuid[], conflicts uuid[],
    fact_id uuid, subject_id uuid, subject_name text, subject_kind text, predicate_id uuid, predicate_name text,
    predicate_status text, predicate_cardinality text, object_id uuid, object_name text, object_kind text,
    object_value text, value_type text, scope text, garden_id uuid, agent_id text, source text,
    source_trust double precision, confidence double precision, valid_from timestamptz, valid_to timestamptz,
    created_at timestamptz, closed_at timestamptz, retracted_at timestamptz, contradicted boolean, evidence uuid[],
    derived_from text[], fact_hash text, mentions int)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_sort = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_gardens uuid[] := coalesce(nullif(current_setting('app.gardens', true), '')::uuid[], '{}');
    v_entities uuid[];
    v_states text[];
    v_ambiguous jsonb;
    v_predicates uuid[];
    v_drafts fact_draft[];
    v_good fact_draft[];
    v_placed fact_draft[];
    -- Apart from the drafts, which are gone through again for every turn.
    v_values text[];
    v_jsons text[];
    v_steps fact_step[] := '{}';
    v_hashes bytea[];
    v_hashed int[];
    v_cycles int[] := '{}';
    v_now timestamptz := clock_timestamp();
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RAISE EXCEPTION 'write_facts needs a scope with tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;

    -- 1. What is meant, and what is refused, before anything is made.
    SELECT array_agg(r.entity_id ORDER BY r.ref), array_agg(r.state ORDER BY r.ref),
           jsonb_object_agg(r.ref, r.candidates) FILTER (WHERE r.state = 'ambiguous')
    INTO v_entities, v_states, v_ambiguous
    FROM resolve_entities(v_tenant, v_project, p_entities) r;

    WITH predicate AS (
        SELECT n.ref, r.predicate_id, r.status, n.norm
        FROM json_to_recordset(p_predicates) AS n(ref int, norm text)
        JOIN resolve_predicates(v_tenant, v_project, p_predicates) r ON r.ref = n.ref
    ), cited AS (
        SELECT v.idx, (array_agg(v.note_id ORDER BY v.at))[1] AS first_note,
               min(v.at) FILTER (WHERE n.note_id IS NULL) AS missing
        FROM json_to_recordset(p_evidence) AS v(idx int, at int, note_id uuid)
        LEFT JOIN LATERAL (
            SELECT n.note_id FROM memory_notes n
            WHERE n.tenant_id = v_tenant AND n.note_id = v.note_id AND n.project_id = v_project
              AND n.deleted_at IS NULL AND n.suppression = 0
              AND (n.scope <> 'agent_private' OR n.agent_id = v_agent)
              AND (n.garden_id IS NULL OR n.garden_id = ANY (v_gardens))
            OFFSET 0
        ) n ON true
        GROUP BY v.idx
    )
    SELECT array_agg(ROW(
        d.idx, d.fact_id, d.s, d.p, d.o, NULL, NULL, NULL, d.predicate, d.value, d.value_type, d.value_json,
        d.object_hash, d.scope, o.owner_key, d.garden_id, d.confidence, d.source, d.source_trust, d.hlc, d.valid_from,
        d.valid_to, d.valid_from IS NOT NULL OR d.valid_to IS NOT NULL, NULL, NULL, NULL, NULL, c.first_note,
        f.refused, CASE f.refused
            WHEN 'predicate_not_found' THEN 'predicate'
            WHEN 'predicate_deprecated' THEN 'predicate'
            WHEN 'note_not_found' THEN 'evidence[' || c.missing || ']'
            WHEN 'garden_forbidden' THEN 'garden_id'
            WHEN 'agent_required' THEN 'scope'
            WHEN 'valid_to_too_early' THEN 'valid_to'
            WHEN 'entity_tombstoned' THEN CASE WHEN h.subject > 0 THEN 'subject' ELSE 'object' END
            ELSE CASE WHEN v_states[d.s] IN ('unknown', 'ambiguous', 'hidden') THEN 'subject' ELSE 'object' END
        END)::fact_draft ORDER BY d.idx)
    INTO v_drafts
    FROM json_populate_recordset(NULL::fact_draft, p_facts) d
    JOIN predicate r ON r.ref = d.p
    LEFT JOIN cited c ON c.idx = d.idx
    -- Whose belief it is follows from the scope alone, whatever the caller says.
    CROSS JOIN LATERAL (
        SELECT concat_ws(' ', CASE d.scope WHEN 'agent_private' THEN v_agent END, d.garden_id) AS owner_key
    ) o
    CROSS JOIN LATERAL (
        SELECT CASE WHEN p_admin THEN (
                   SELECT hidden_level(e.erased_scopes, e.held_scopes, d.scope) FROM graph_entities e
                   WHERE e.tenant_id = v_tenant AND e.entity_id = v_entities[d.s]) END AS subject,
               CASE WHEN p_admin THEN (
                   SELECT hidden_level(e.erased_scopes, e.held_scopes, d.scope) FROM graph_entities e
                   WHERE e.tenant_id = v_tenant AND e.entity_id = v_entities[d.o]) END AS object
    ) h
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN d.scope = 'agent_private' AND v_agent = '' THEN 'agent_required'
            WHEN h.subject > 0 OR h.object > 0 THEN 'entity_tombstoned'
            WHEN v_states[d.s] IN ('unknown', 'hidden') THEN 'entity_not_found'
            WHEN v_states[d.s] = 'ambiguous' THEN 'entity_ambiguous'
            WHEN v_states[d.o] IN ('unknown', 'hidden') THEN 'entity_not_found'
            WHEN v_states[d.o] = 'ambiguous' THEN 'entity_ambiguous'
            WHEN r.predicate_id IS NULL AND r.norm IS NULL THEN 'predicate_not_found'
            WHEN r.status = 'deprecated' THEN 'predicate_deprecated'
            WHEN c.missing IS NOT NULL THEN 'note_not_found'
            WHEN d.valid_from IS NULL AND d.valid_to <= v_now THEN 'valid_to_too_early'
            WHEN d.garden_id IS NOT NULL AND d.garden_id <> ALL (v_gardens) THEN 'garden_forbidden'
        END AS refused
    ) f;

    -- A fact that gives its own start could have been cited beforehand: it must not be derived from itself.
    IF json_array_length(p_derived) > 0 THEN
        SELECT array_agg(d.idx), array_agg(hash_fact(
                   d.confidence, coalesce(s.canonical_norm, n.norm), coalesce(r.canonical, d.predicate), d.scope,
                   d.source, d.valid_from, CASE WHEN d.o IS NULL THEN d.value_type ELSE 'ref' END,
                   CASE WHEN d.o IS NULL THEN d.value_json ELSE to_json(coalesce(o.canonical_norm, m.norm))::text END))
        INTO v_hashed, v_hashes
        FROM unnest(v_drafts) d
        JOIN resolve_predicates(v_tenant, v_project, p_predicates) r ON r.ref = d.p
        JOIN json_to_recordset(p_entities) AS n(ref int, norm text) ON n.ref = d.s
        LEFT JOIN json_to_recordset(p_entities) AS m(ref int, norm text) ON m.ref = d.o
        LEFT JOIN LATERAL (
            -- Of what is hidden the name as it was said, as if it were new.
            SELECT CASE WHEN e.suppression = 0 THEN e.canonical_norm END AS canonical_norm FROM graph_entities e
            WHERE e.tenant_id = v_tenant AND e.entity_id = v_entities[d.s] OFFSET 0) s ON true
        LEFT JOIN LATERAL (
            SELECT CASE WHEN e.suppression = 0 THEN e.canonical_norm END AS canonical_norm FROM graph_entities e
            WHERE e.tenant_id = v_tenant AND e.entity_id = v_entities[d.o] OFFSET 0) o ON true
        WHERE d.refused IS NULL AND d.valid_from IS NOT NULL;
        IF v_hashed IS NOT NULL THEN
            -- Two that cite each other must not be written at the same time, each unaware of the other.
            PERFORM FROM tenants t WHERE t.tenant_id = v_tenant FOR NO KEY UPDATE;
        END IF;
        v_cycles := find_cycles(v_tenant, v_project, v_hashed, v_hashes, p_derived);
    END IF;
    IF cardinality(v_cycles) > 0 THEN
        SELECT array_agg(ROW(
            d.idx, d.fact_id, d.s, d.p, d.o, NULL, NULL, NULL, d.predicate, d.value, d.value_type, d.value_json,
            d.object_hash, d.scope, d.owner_key, d.garden_id, d.confidence, d.source, d.source_trust, d.hlc,
            d.valid_from, d.valid_to, d.timed, NULL, NULL, NULL, NULL, d.note_id,
            CASE WHEN d.idx = ANY (v_cycles) THEN 'provenance_cycle_detected' ELSE d.refused END,
            CASE WHEN d.idx = ANY (v_cycles) THEN 'derived_from' ELSE d.field END)::fact_draft ORDER BY d.idx)
        INTO v_drafts FROM unnest(v_drafts) d;
    END IF;
    SELECT array_agg(d ORDER BY d.idx) INTO v_good FROM unnest(v_drafts) d WHERE d.refused IS NULL;

    IF cardinality(v_good) > 0 AND NOT (p_atomic AND cardinality(v_good) < cardinality(v_drafts)) THEN
        -- 2. Names that are new.
        v_entities := make_entities(v_tenant, v_project, p_entities, v_entities,
            ARRAY(SELECT d.s FROM unnest(v_good) d UNION SELECT d.o FROM unnest(v_good) d WHERE d.o IS NOT NULL));
        v_predicates := make_predicates(v_tenant, v_project, p_predicates,
            ARRAY(SELECT DISTINCT d.p FROM unnest(v_good) d));

        -- 3. Locks: a predicate whose cardinality is about to change, an entity about to be merged, is waited for.
        PERFORM FROM (SELECT DISTINCT u.id FROM unnest(v_predicates) u(id) ORDER BY u.id) u
        CROSS JOIN LATERAL (
            SELECT FROM graph_predicates p WHERE p.tenant_id = v_tenant AND p.predicate_id = u.id FOR KEY SHARE) p;
        PERFORM FROM (SELECT DISTINCT v_entities[d.s] AS id FROM unnest(v_good) d ORDER BY id) u
        CROSS JOIN LATERAL (
            SELECT FROM graph_entities e WHERE e.tenant_id = v_tenant AND e.entity_id = u.id FOR NO KEY UPDATE) e;
        PERFORM FROM (SELECT DISTINCT v_entities[d.o] AS id FROM unnest(v_good) d WHERE d.o IS NOT NULL ORDER BY id) u
        CROSS JOIN LATERAL (
            SELECT FROM graph_entities e WHERE e.tenant_id = v_tenant AND e.entity_id = u.id FOR KEY SHARE) e;

        -- 4. One clock for all that follows, read when nobody else can write these timelines. Each draft is a
        -- microsecond later than the one before it, so that two in one batch are as two in a row. Those of one
        -- timeline, or of one belief where values stand side by side, take turns; the others go together.
        v_now := clock_timestamp();
        SELECT array_agg(ROW(
            t.idx, t.fact_id, t.place, NULL, NULL, t.subject_now, t.predicate_now, t.object_now, t.predicate, NULL,
            t.value_type, NULL, t.hash_now, t.scope, t.owner_key, t.garden_id, t.confidence, t.source,
            t.source_trust, t.hlc, coalesce(t.valid_from, t.moment), t.valid_to, t.timed, t.moment, t.mode_now,
            t.hidden, t.turn_now, t.note_id, NULL, NULL)::fact_draft ORDER BY t.idx),
            array_agg(t.value ORDER BY t.idx), array_agg(t.value_json ORDER BY t.idx)
        INTO v_placed, v_values, v_jsons
        FROM (
          SELECT u.*, row_number() OVER (ORDER BY u.idx) AS place,
                 row_number() OVER (PARTITION BY u.scope, u.owner_key, u.subject_now, u.predicate_now,
                                    CASE WHEN u.mode_now = 0 THEN u.hash_now END ORDER BY u.idx) AS turn_now
          FROM (
            SELECT d.*, v_entities[d.s] AS subject_now, v_entities[d.o] AS object_now, p.predicate_id AS predicate_now,
                   coalesce(d.object_hash, sha256(uuid_send(v_entities[d.o]))) AS hash_now,
                   v_now + (d.idx - v_good[1].idx) * interval '1 microsecond' AS moment,
                   CASE WHEN p.status = 'active' AND p.cardinality = 'single' THEN 2
                        WHEN p.status = 'pending' AND d.o IS NULL THEN 1 ELSE 0 END AS mode_now,
                   stricter_level(s.hidden, o.hidden) AS hidden
            FROM unnest(v_good) d
            CROSS JOIN LATERAL (
                SELECT p.predicate_id, p.status, p.cardinality FROM graph_predicates p
                WHERE p.tenant_id = v_tenant AND p.predicate_id = v_predicates[d.p] AND p.status <> 'deprecated'
                OFFSET 0
            ) p
            CROSS JOIN LATERAL (
                SELECT hidden_level(s.erased_scopes, s.held_scopes, d.scope) AS hidden FROM graph_entities s
                WHERE s.tenant_id = v_tenant AND s.entity_id = v_entities[d.s] AND s.merged_into IS NULL
                OFFSET 0
            ) s
            LEFT JOIN LATERAL (
                SELECT hidden_level(o.erased_scopes, o.held_scopes, d.scope) AS hidden, o.merged_into, true AS found
                FROM graph_entities o
                WHERE o.tenant_id = v_tenant AND o.entity_id = v_entities[d.o]
                OFFSET 0
            ) o ON true
            WHERE o.merged_into IS NULL AND (d.o IS NULL OR o.found) AND (
                d.valid_to IS NULL OR d.valid_from IS NOT NULL
                OR d.valid_to > v_now + (d.idx - v_good[1].idx) * interval '1 microsecond')
          ) u
        ) t;
        IF cardinality(v_placed) IS DISTINCT FROM cardinality(v_good)
           OR (p_admin AND EXISTS (SELECT FROM unnest(v_placed) d WHERE d.suppression > 0)) THEN
            RAISE EXCEPTION 'a name changed its meaning while this was being written' USING ERRCODE = '40001';
        END IF;
        v_steps := place_facts(v_tenant, v_project, v_agent, v_placed, v_values, v_jsons, p_evidence, p_derived);
        INSERT INTO audit_log (tenant_id, event_id, project_id, event_type, key_id, agent_id, details, created_at)
        SELECT v_tenant, make_id(), v_project, 'fact_write', p_key, v_agent, jsonb_build_object(
                   'action', 'assert', 'created', count(*) FILTER (WHERE w.is_new),
                   'reused', count(*) FILTER (WHERE NOT w.is_new), 'fact_ids', jsonb_agg(w.fact_id)), v_now
        FROM unnest(v_steps) w HAVING p_key IS NOT NULL;
    END IF;

    -- 5. What came of each, shown to its writer whatever a policy hides from others. What was born hidden is shown as
    -- it would be if nobody had ever used the name.
    RETURN QUERY
    SELECT d.idx, d.refused, CASE WHEN d.refused IS NOT NULL THEN d.field END,
           CASE WHEN d.refused = 'entity_ambiguous' THEN ARRAY(
               SELECT jsonb_array_elements_text(
                   v_ambiguous -> (CASE d.field WHEN 'subject' THEN d.s ELSE d.o END)::text))::uuid[] END,
           CASE WHEN f.hidden OR f.fact_id = d.fact_id THEN 'created' WHEN f.fact_id IS NOT NULL THEN 'reused' END,
           -- Of what is suppressed no trace.
           -- Looked up in an order that only the right index has, and put in order afterwards.
           CASE WHEN f.hidden THEN '{}' ELSE coalesce((
               SELECT array_agg(u.from_fact_id ORDER BY u.supersession_id) FROM (
                   SELECT x.from_fact_id, x.supersession_id FROM graph_fact_supersessions x
                   WHERE x.tenant_id = v_tenant AND x.to_fact_id BETWEEN d.fact_id AND d.fact_id
                     AND x.created_at = f.created_at AND x.suppression = 0
                   ORDER BY x.to_fact_id OFFSET 0) u), '{}') END,
           coalesce((
               SELECT array_agg(u.conflict_id ORDER BY u.conflict_id) FROM (
                   SELECT x.conflict_id FROM fact_conflicts x
                   WHERE x.tenant_id = v_tenant AND x.fact_b BETWEEN f.fact_id AND f.fact_id
                     AND x.detected_at >= v_now
                   ORDER BY x.fact_b OFFSET 0) u), '{}'),
           CASE WHEN f.hidden THEN d.fact_id ELSE f.fact_id END,
           coalesce(s.decoy_id, s.entity_id), coalesce(s.shown, s.canonical),
           CASE WHEN s.shown IS NULL THEN s.kind ELSE s.said END,
           p.predicate_id, p.canonical, p.status, p.cardinality,
           coalesce(o.decoy_id, o.entity_id), coalesce(o.shown, o.canonical),
           CASE WHEN o.shown IS NULL THEN o.kind ELSE o.said END,
           CASE WHEN f.hidden THEN d.value ELSE f.object_value END,
           CASE WHEN f.hidden THEN d.value_type ELSE f.value_type END, f.scope, f.garden_id, f.agent_id,
           CASE WHEN f.hidden THEN d.source ELSE f.source END,
           CASE WHEN f.hidden THEN d.source_trust ELSE f.source_trust END,
           CASE WHEN f.hidden THEN d.confidence ELSE f.confidence END,
           CASE WHEN f.hidden THEN coalesce(d.valid_from, m.moment) ELSE f.valid_from END,
           CASE WHEN f.hidden THEN d.valid_to ELSE f.valid_to END,
           CASE WHEN f.hidden THEN m.moment ELSE f.created_at END,
           CASE WHEN NOT f.hidden THEN f.closed_at WHEN d.valid_to IS NOT NULL THEN m.moment END, f.retracted_at,
           coalesce(
               (SELECT true FROM fact_conflicts x
                WHERE x.tenant_id = v_tenant AND x.fact_a = f.fact_id AND x.status = 'open' AND x.suppression = 0
                LIMIT 1),
               (SELECT true FROM fact_conflicts x
                WHERE x.tenant_id = v_tenant AND x.fact_b = f.fact_id AND x.status = 'open' AND x.suppression = 0
                LIMIT 1),
               false),
           CASE WHEN f.hidden THEN ARRAY(
               SELECT v.note_id FROM json_to_recordset(p_evidence) AS v(idx int, at int, note_id uuid)
               WHERE v.idx = d.idx ORDER BY v.at)
           ELSE ARRAY(
               SELECT x.note_id FROM graph_fact_evidence x
               WHERE x.tenant_id = v_tenant AND x.fact_id = f.fact_id AND x.suppression = 0
               ORDER BY x.created_at, x.evidence_id) END,
           CASE WHEN f.hidden THEN ARRAY(
               SELECT DISTINCT v.hash FROM json_to_recordset(p_derived) AS v(idx int, hash text)
               WHERE v.idx = d.idx ORDER BY v.hash)
           ELSE ARRAY(
               SELECT encode(x.source_hash, 'hex') FROM fact_derivations x
               WHERE x.tenant_id = v_tenant AND x.fact_id = f.fact_id AND x.kind = 'derived'
               ORDER BY x.source_hash) END,
           encode(CASE WHEN f.hidden THEN hash_fact(
               d.confidence, coalesce(s.norm, s.canonical_norm), p.canonical, d.scope, d.source,
               coalesce(d.valid_from, m.moment), CASE WHEN d.o IS NULL THEN d.value_type ELSE 'ref' END,
               CASE WHEN d.o IS NULL THEN d.value_json
                    ELSE to_json(coalesce(o.norm, o.canonical_norm))::text END) ELSE f.fact_hash END, 'hex'),
           CASE WHEN f.hidden THEN 1 ELSE f.mentions END
    FROM unnest(v_drafts) d
    CROSS JOIN LATERAL (SELECT v_now + (d.idx - v_good[1].idx) * interval '1 microsecond' AS moment) m
    LEFT JOIN unnest(v_steps) w ON w.idx = d.idx
    LEFT JOIN LATERAL (
        -- An order that only the primary key has; see place_facts.
        SELECT f.*, f.suppression > 0 AS hidden FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.fact_id BETWEEN w.fact_id AND w.fact_id
        ORDER BY f.fact_id LIMIT 1
    ) f ON true
    LEFT JOIN LATERAL (
        SELECT e.*, n.canonical AS shown, n.kind AS said, n.norm FROM graph_entities e
        LEFT JOIN json_to_recordset(p_entities) AS n(ref int, canonical text, kind text, norm text)
            ON e.suppression > 0 AND n.ref = d.s
        WHERE e.tenant_id = v_tenant AND e.entity_id = f.subject_entity_id OFFSET 0
    ) s ON true
    LEFT JOIN LATERAL (
        SELECT e.*, n.canonical AS shown, n.kind AS said, n.norm FROM graph_entities e
        LEFT JOIN json_to_recordset(p_entities) AS n(ref int, canonical text, kind text, norm text)
            ON e.suppression > 0 AND n.ref = d.o
        WHERE e.tenant_id = v_tenant AND e.entity_id = f.object_entity_id OFFSET 0
    ) o ON true
    LEFT JOIN LATERAL (
        SELECT p.* FROM graph_predicates p WHERE p.tenant_id = v_tenant AND p.predicate_id = f.predicate_id OFFSET 0
    ) p ON true
    ORDER BY d.idx;
END
$$;
