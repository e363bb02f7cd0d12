-- Gives drafts their entities, predicates, moments and turns. Each draft is a microsecond later than the one before it,
-- so that a batch equals the same facts written one after the other. Drafts of one timeline, or of one belief where
-- several values are valid at once, get turns; the others are written together.
-- Leaves out drafts whose names changed their meaning meanwhile. Values are separate from the drafts, which are read
-- again in every turn. Inlined into write_facts, whose settings and rights it has.
CREATE OR REPLACE FUNCTION order_drafts(
    p_tenant text, p_drafts fact_draft[], p_entities uuid[], p_predicates uuid[], p_first int, p_now timestamptz)
RETURNS TABLE (drafts fact_draft[], object_values text[], object_jsons text[])
LANGUAGE sql STABLE
AS $$
    SELECT array_agg(ROW(
        t.idx, t.fact_id, t.place, NULL, NULL, t.subject_now, t.predicate_now, t.object_now, t.predicate, NULL,
        t.value_type, NULL, t.hash_now, t.scope, t.owner_key, t.garden_id, t.confidence, t.source,
        t.source_trust, t.hlc, coalesce(t.valid_from, t.moment), t.valid_to, t.timed, t.moment, t.mode_now,
        t.hidden, t.turn_now, t.note_id, NULL, NULL)::fact_draft ORDER BY t.idx),
        array_agg(t.value ORDER BY t.idx), array_agg(t.value_json ORDER BY t.idx)
    FROM (
        SELECT u.*, row_number() OVER (ORDER BY u.idx) AS place,
               row_number() OVER (PARTITION BY u.scope, u.owner_key, u.subject_now, u.predicate_now,
                                  CASE WHEN u.mode_now = 0 THEN u.hash_now END ORDER BY u.idx) AS turn_now
        FROM (
            SELECT d.*, p_entities[d.s] AS subject_now, p_entities[d.o] AS object_now, p.predicate_id AS predicate_now,
                   coalesce(d.object_hash, sha256(uuid_send(p_entities[d.o]))) AS hash_now,
                   p_now + (d.idx - p_first) * interval '1 microsecond' AS moment,
                   -- 2: one value at a time. 1: another value is a conflict. 0: values stand side by side.
                   CASE WHEN p.status = 'active' AND p.cardinality = 'single' THEN 2
                        WHEN p.status = 'pending' AND d.o IS NULL THEN 1 ELSE 0 END AS mode_now,
                   stricter_level(s.hidden, o.hidden) AS hidden
            FROM unnest(p_drafts) d
            CROSS JOIN LATERAL (
                SELECT p.predicate_id, p.status, p.cardinality FROM graph_predicates p
                WHERE p.tenant_id = p_tenant AND p.predicate_id = p_predicates[d.p] AND p.status <> 'deprecated'
                OFFSET 0
            ) p
            CROSS JOIN LATERAL (
                SELECT hidden_level(s.erased_scopes, s.held_scopes, d.scope) AS hidden FROM graph_entities s
                WHERE s.tenant_id = p_tenant AND s.entity_id = p_entities[d.s] AND s.merged_into IS NULL
                OFFSET 0
            ) s
            LEFT JOIN LATERAL (
                SELECT hidden_level(o.erased_scopes, o.held_scopes, d.scope) AS hidden, o.merged_into, true AS found
                FROM graph_entities o
                WHERE o.tenant_id = p_tenant AND o.entity_id = p_entities[d.o]
                OFFSET 0
            ) o ON true
            WHERE o.merged_into IS NULL AND (d.o IS NULL OR o.found) AND (
                d.valid_to IS NULL OR d.valid_from IS NOT NULL
                OR d.valid_to > p_now + (d.idx - p_first) * interval '1 microsecond')
        ) u
    ) t
$$;
