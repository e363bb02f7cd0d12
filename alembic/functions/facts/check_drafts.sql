-- Decides which facts of a request are refused, and by which field, before anything is written. A draft of confidence 0
-- denies a fact: it gets the id of the fact that holds its belief now, or is refused.
-- p_entities and p_states are the entities that the drafts name, by reference. Inlined into write_facts, whose settings
-- and rights it has.
CREATE OR REPLACE FUNCTION check_drafts(
    p_tenant text, p_project text, p_predicates json, p_facts json, p_evidence json, p_entities uuid[], p_states text[],
    p_admin boolean, p_now timestamptz)
RETURNS TABLE (drafts fact_draft[])
LANGUAGE sql STABLE
AS $$
    WITH caller AS (
        SELECT coalesce(current_setting('app.agent_id', true), '') AS agent,
               coalesce(nullif(current_setting('app.gardens', true), '')::uuid[], '{}') AS gardens, owner_user() AS owner
    ), predicate AS (
        SELECT n.ref, r.predicate_id, r.status, n.norm
        FROM json_to_recordset(p_predicates) AS n(ref int, norm text)
        JOIN resolve_predicates(p_tenant, p_project, p_predicates) r ON r.ref = n.ref
    ), cited AS (
        SELECT v.idx, (array_agg(v.note_id ORDER BY v.at))[1] AS first_note,
               min(v.at) FILTER (WHERE n.note_id IS NULL) AS missing
        FROM caller c
        CROSS JOIN json_to_recordset(p_evidence) AS v(idx int, at int, note_id uuid)
        LEFT JOIN LATERAL (
            SELECT n.note_id FROM memory_notes n
            WHERE n.tenant_id = p_tenant AND n.note_id = v.note_id AND n.project_id = p_project
              AND n.deleted_at IS NULL AND n.suppression = 0
              AND is_visible(n.scope, n.agent_id, n.garden_id, n.user_id, c.agent, c.gardens, c.owner)
            OFFSET 0
        ) n ON true
        GROUP BY v.idx
    )
    SELECT array_agg(ROW(
        d.idx, coalesce(same.fact_id, d.fact_id), d.s, d.p, d.o, NULL, NULL, NULL, d.predicate, d.value, d.value_type, d.value_json,
        d.object_hash, d.scope, o.owner_key, d.garden_id, d.confidence, d.source, d.source_trust, d.hlc, d.valid_from,
        d.valid_to, d.valid_from IS NOT NULL OR d.valid_to IS NOT NULL, NULL, NULL, NULL, NULL, c.first_note,
        f.refused, CASE f.refused
            WHEN 'predicate_not_found' THEN 'predicate'
            WHEN 'predicate_deprecated' THEN 'predicate'
            WHEN 'note_not_found' THEN 'evidence[' || c.missing || ']'
            WHEN 'garden_forbidden' THEN 'garden_id'
            WHEN 'agent_required' THEN 'scope'
            WHEN 'valid_to_too_early' THEN 'valid_to'
            WHEN 'confidence_zero' THEN 'confidence'
            WHEN 'entity_tombstoned' THEN CASE WHEN h.subject > 0 THEN 'subject' ELSE 'object' END
            ELSE CASE WHEN p_states[d.s] IN ('unknown', 'ambiguous', 'hidden') THEN 'subject' ELSE 'object' END
        END)::fact_draft ORDER BY d.idx)
    FROM caller w
    CROSS JOIN json_populate_recordset(NULL::fact_draft, p_facts) d
    JOIN predicate r ON r.ref = d.p
    LEFT JOIN cited c ON c.idx = d.idx
    -- The owner follows from the scope alone, whatever the request says.
    CROSS JOIN LATERAL (
        SELECT owner_key(d.scope, w.agent, d.garden_id, w.owner) AS owner_key
    ) o
    CROSS JOIN LATERAL (
        SELECT CASE WHEN p_admin THEN (
                   SELECT hidden_level(e.erased_scopes, e.held_scopes, d.scope) FROM graph_entities e
                   WHERE e.tenant_id = p_tenant AND e.entity_id = p_entities[d.s]) END AS subject,
               CASE WHEN p_admin THEN (
                   SELECT hidden_level(e.erased_scopes, e.held_scopes, d.scope) FROM graph_entities e
                   WHERE e.tenant_id = p_tenant AND e.entity_id = p_entities[d.o]) END AS object
    ) h
    LEFT JOIN LATERAL (
        SELECT x.fact_id FROM (
            SELECT f.fact_id, f.valid_until FROM graph_facts f
            WHERE d.confidence = 0 AND f.tenant_id = p_tenant AND f.project_id = p_project
              AND f.subject_entity_id = p_entities[d.s] AND f.predicate_id = r.predicate_id
              AND f.object_hash = coalesce(d.object_hash, sha256(uuid_send(p_entities[d.o])))
              AND f.valid_from <= coalesce(d.valid_from, p_now) AND f.scope = d.scope AND f.owner_key = o.owner_key
              AND f.retracted_at IS NULL AND f.suppression = 0
            ORDER BY f.object_hash DESC, f.valid_from DESC LIMIT 1
        ) x WHERE x.valid_until > coalesce(d.valid_from, p_now)
    ) same ON true
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN d.scope = 'agent_private' AND w.agent = '' THEN 'agent_required'
            WHEN h.subject > 0 OR h.object > 0 THEN 'entity_tombstoned'
            WHEN p_states[d.s] IN ('unknown', 'hidden') THEN 'entity_not_found'
            WHEN p_states[d.s] = 'ambiguous' THEN 'entity_ambiguous'
            WHEN p_states[d.o] IN ('unknown', 'hidden') THEN 'entity_not_found'
            WHEN p_states[d.o] = 'ambiguous' THEN 'entity_ambiguous'
            WHEN r.predicate_id IS NULL AND r.norm IS NULL THEN 'predicate_not_found'
            WHEN r.status = 'deprecated' THEN 'predicate_deprecated'
            WHEN c.missing IS NOT NULL THEN 'note_not_found'
            WHEN d.valid_from IS NULL AND d.valid_to <= p_now THEN 'valid_to_too_early'
            WHEN d.garden_id IS NOT NULL AND d.garden_id <> ALL (w.gardens) THEN 'garden_forbidden'
            WHEN d.confidence = 0 AND same.fact_id IS NULL THEN 'confidence_zero'
        END AS refused
    ) f
$$;
