-- Returns the result of each draft to its writer, whatever row policies hide from others. A fact that was written
-- hidden, because a tombstone covers its entity, looks like the first fact about an unused name.
-- Inlined into write_facts, whose settings and rights it has.
CREATE OR REPLACE FUNCTION present_written_facts(
    p_tenant text, p_drafts fact_draft[], p_steps fact_step[], p_entities json, p_evidence json, p_derived json,
    p_ambiguous jsonb, p_first int, p_now timestamptz)
RETURNS TABLE (
    idx int, refused text, field text, candidates uuid[], outcome text, superseded uuid[], conflicts uuid[],
    fact_id uuid, subject_id uuid, subject_name text, subject_kind text, predicate_id uuid, predicate_name text,
    predicate_status text, predicate_cardinality text, object_id uuid, object_name text, object_kind text,
    object_value text, value_type text, scope text, garden_id uuid, agent_id text, source text,
    source_trust double precision, confidence double precision, valid_from timestamptz, valid_to timestamptz,
    created_at timestamptz, closed_at timestamptz, retracted_at timestamptz, contradicted boolean, evidence uuid[],
    derived_from text[], fact_hash text, mentions int, user_id text)
LANGUAGE sql STABLE
AS $$
    SELECT d.idx, d.refused, CASE WHEN d.refused IS NOT NULL THEN d.field END,
           CASE WHEN d.refused = 'entity_ambiguous' THEN ARRAY(
               SELECT jsonb_array_elements_text(
                   p_ambiguous -> (CASE d.field WHEN 'subject' THEN d.s ELSE d.o END)::text))::uuid[] END,
           CASE WHEN d.confidence = 0 AND f.fact_id IS NOT NULL THEN 'retracted' WHEN f.hidden OR f.fact_id = d.fact_id THEN 'created' WHEN f.fact_id IS NOT NULL THEN 'reused' END,
           -- Read in the order of the one index that fits, and sorted afterwards.
           CASE WHEN f.hidden OR d.confidence = 0 THEN '{}' ELSE coalesce((
               SELECT array_agg(u.from_fact_id ORDER BY u.supersession_id) FROM (
                   SELECT x.from_fact_id, x.supersession_id FROM graph_fact_supersessions x
                   WHERE x.tenant_id = p_tenant AND x.to_fact_id BETWEEN d.fact_id AND d.fact_id
                     AND x.created_at = f.created_at AND x.suppression = 0
                   ORDER BY x.to_fact_id OFFSET 0) u), '{}') END,
           coalesce((
               SELECT array_agg(u.conflict_id ORDER BY u.conflict_id) FROM (
                   SELECT x.conflict_id FROM fact_conflicts x
                   WHERE x.tenant_id = p_tenant AND x.fact_b BETWEEN f.fact_id AND f.fact_id
                     AND x.detected_at >= p_now
                   ORDER BY x.fact_b OFFSET 0) u), '{}'),
           CASE WHEN f.hidden THEN d.fact_id ELSE f.fact_id END,
           s.shown_id, s.name, s.kind, p.predicate_id, p.canonical, p.status, p.cardinality,
           o.shown_id, o.name, o.kind,
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
                WHERE x.tenant_id = p_tenant AND x.fact_a = f.fact_id AND x.status = 'open' AND x.suppression = 0
                LIMIT 1),
               (SELECT true FROM fact_conflicts x
                WHERE x.tenant_id = p_tenant AND x.fact_b = f.fact_id AND x.status = 'open' AND x.suppression = 0
                LIMIT 1),
               false),
           CASE WHEN f.hidden THEN ARRAY(
               SELECT v.note_id FROM json_to_recordset(p_evidence) AS v(idx int, at int, note_id uuid)
               WHERE v.idx = d.idx ORDER BY v.at)
           ELSE ARRAY(
               SELECT x.note_id FROM graph_fact_evidence x
               CROSS JOIN LATERAL (
                   SELECT FROM memory_notes n
                   WHERE n.tenant_id = p_tenant AND n.note_id = x.note_id AND n.deleted_at IS NULL
                     AND n.suppression = 0 AND is_visible(n.scope, n.agent_id, n.garden_id, n.user_id, c.agent, c.gardens, c.owner)
                   OFFSET 0) n
               WHERE x.tenant_id = p_tenant AND x.fact_id = f.fact_id AND x.suppression = 0
               ORDER BY x.created_at, x.evidence_id) END,
           CASE WHEN f.hidden THEN ARRAY(
               SELECT DISTINCT v.hash FROM json_to_recordset(p_derived) AS v(idx int, hash text)
               WHERE v.idx = d.idx ORDER BY v.hash)
           ELSE ARRAY(
               SELECT encode(x.source_hash, 'hex') FROM fact_derivations x
               WHERE x.tenant_id = p_tenant AND x.fact_id = f.fact_id AND x.kind = 'derived'
               ORDER BY x.source_hash) END,
           encode(CASE WHEN f.hidden THEN hash_fact(
               d.confidence, s.norm, p.canonical, d.scope, d.source, coalesce(d.valid_from, m.moment),
               CASE WHEN d.o IS NULL THEN d.value_type ELSE 'ref' END,
               CASE WHEN d.o IS NULL THEN d.value_json ELSE to_json(o.norm)::text END) ELSE f.fact_hash END, 'hex'),
           CASE WHEN f.hidden THEN 1 ELSE f.mentions END, c.owner
    FROM (
        SELECT coalesce(current_setting('app.agent_id', true), '') AS agent,
               coalesce(nullif(current_setting('app.gardens', true), '')::uuid[], '{}') AS gardens,
               owner_user() AS owner
    ) c
    CROSS JOIN unnest(p_drafts) d
    CROSS JOIN LATERAL (SELECT p_now + (d.idx - p_first) * interval '1 microsecond' AS moment) m
    LEFT JOIN unnest(p_steps) w ON w.idx = d.idx
    LEFT JOIN LATERAL (
        -- In an order that only the primary key has; see place_facts.
        SELECT f.*, f.suppression > 0 AS hidden FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.fact_id BETWEEN w.fact_id AND w.fact_id
        ORDER BY f.fact_id LIMIT 1
    ) f ON true
    LEFT JOIN LATERAL present_named_entity(p_tenant, f.subject_entity_id, d.s, p_entities) s ON true
    LEFT JOIN LATERAL present_named_entity(p_tenant, f.object_entity_id, d.o, p_entities) o ON true
    LEFT JOIN LATERAL (
        SELECT p.* FROM graph_predicates p WHERE p.tenant_id = p_tenant AND p.predicate_id = f.predicate_id OFFSET 0
    ) p ON true
    ORDER BY d.idx
$$;
