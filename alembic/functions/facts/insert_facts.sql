-- Inserts the new facts of one turn with their edges, and links them into the chain of supersessions.
-- p_values and p_jsons are the objects' values of all drafts; a draft's place among them is in its field s.
-- Runs with the settings and rights of place_facts.
CREATE OR REPLACE FUNCTION insert_facts(
    p_tenant text, p_project text, p_agent text, p_drafts fact_draft[], p_steps fact_step[], p_values text[],
    p_jsons text[], p_language regconfig)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_user text := owner_user();
BEGIN
    INSERT INTO graph_facts (
        tenant_id, fact_id, project_id, agent_id, scope, garden_id, owner_key, subject_entity_id, predicate,
        predicate_id, object_entity_id, object_value, object_hash, value_type, confidence, source, source_trust,
        fact_hash, hlc, single_valued, suppression, valid_from, valid_to, created_at, updated_at, closed_at, terms,
        user_id)
    SELECT p_tenant, d.fact_id, p_project, p_agent, d.scope, d.garden_id, d.owner_key, d.subject_id, d.predicate,
           d.predicate_id, d.object_id, p_values[d.s], d.object_hash, d.value_type, d.confidence, d.source,
           d.source_trust,
           hash_fact(d.confidence, s.canonical_norm, p.canonical, d.scope, d.source, d.valid_from,
                     CASE WHEN d.object_id IS NULL THEN d.value_type ELSE 'ref' END,
                     CASE WHEN d.object_id IS NULL THEN p_jsons[d.s] ELSE to_json(o.canonical_norm)::text END),
           d.hlc, d.mode = 2, d.suppression, d.valid_from, nullif(w.ends, 'infinity'), d.created_at, d.created_at,
           CASE WHEN w.ends < 'infinity' THEN d.created_at END,
           fact_terms(p_language, s.canonical, p.canonical, coalesce(o.canonical, p_values[d.s])), v_user
    FROM unnest(p_steps) w
    JOIN unnest(p_drafts) d ON d.idx = w.idx
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
        object_entity_id, confidence, source_trust, valid_from, valid_to, created_at, closed_at, suppression,
        user_id)
    SELECT p_tenant, d.fact_id, p_project, p_agent, d.scope, d.garden_id, d.owner_key, d.subject_id,
           d.predicate_id, d.object_id, d.confidence, d.source_trust, d.valid_from, nullif(w.ends, 'infinity'),
           d.created_at, CASE WHEN w.ends < 'infinity' THEN d.created_at END, d.suppression, v_user
    FROM unnest(p_steps) w JOIN unnest(p_drafts) d ON d.idx = w.idx
    WHERE w.is_new AND d.object_id IS NOT NULL;

    -- From the value before to the new one, and from the new one to the next.
    INSERT INTO graph_fact_supersessions (
        tenant_id, project_id, supersession_id, from_fact_id, to_fact_id, note_id, effective_at, created_at, user_id)
    SELECT p_tenant, p_project, make_id(), x.older, x.newer, d.note_id, x.at, d.created_at, v_user
    FROM unnest(p_steps) w
    JOIN unnest(p_drafts) d ON d.idx = w.idx
    CROSS JOIN LATERAL (
        VALUES (w.other_id, w.fact_id, d.valid_from),
               (w.fact_id, CASE WHEN d.mode = 2 AND w.ends IS DISTINCT FROM d.valid_to THEN w.next_id END, w.ends)
    ) x(older, newer, at)
    WHERE w.is_new AND x.older IS NOT NULL AND x.newer IS NOT NULL
    ON CONFLICT DO NOTHING;
END
$$;
