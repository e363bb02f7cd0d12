-- Finds what each draft meets on its timeline: the same belief, another value valid then, and the next one after it.
-- p_drafts are those of one turn. Each lookup asks for an order that only one index has; see place_facts.
-- Inlined into place_facts, whose settings and rights it has.
CREATE OR REPLACE FUNCTION match_drafts(p_tenant text, p_project text, p_drafts fact_draft[])
RETURNS TABLE (steps fact_step[])
LANGUAGE sql STABLE
AS $$
    SELECT array_agg(ROW(
        d.idx, coalesce(same.fact_id, d.fact_id), same.fact_id IS NULL,
        least(coalesce(d.valid_to, 'infinity'), next.valid_from), same.valid_until,
        other.fact_id, other.valid_from, next.fact_id,
        d.mode <> 2 AND d.timed AND next.valid_until < coalesce(d.valid_to, 'infinity'))::fact_step)
    FROM unnest(p_drafts) d
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
    ) next
$$;
