-- Returns notes about the entities that words of a query name: at most 20 entities with such a word in their name, the
-- most mentioned first, at most 50 entities one current edge away, and at most 200 notes that mention any of them.
-- Checks the time after each step, and returns what it has when it is late. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION boost_notes(
    p_tenant text, p_project text, p_words text[], p_scope text, p_deadline interval, OUT notes uuid[],
    OUT timed_out boolean)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_deadline timestamptz := clock_timestamp() + p_deadline;
    v_now timestamptz := clock_timestamp();
    v_patterns text[] := ARRAY(
        SELECT '%' || regexp_replace(w, '([%_\\])', '\\\1', 'g') || '%' FROM unnest(p_words) w);
    v_entities uuid[];
    v_near uuid[] := '{}';
BEGIN
    notes := '{}';
    timed_out := false;
    v_entities := ARRAY(
        SELECT h.entity_id FROM (
            SELECT e.entity_id FROM graph_entities e
            WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.merged_into IS NULL
              AND e.canonical_norm LIKE ANY (v_patterns)
            ORDER BY length(e.canonical_norm), e.entity_id LIMIT 200) h
        CROSS JOIN LATERAL (
            SELECT count(*) AS mentions FROM notes_about(p_tenant, p_project, h.entity_id, p_scope, NULL, 50)) m
        ORDER BY m.mentions DESC, h.entity_id LIMIT 20);
    IF clock_timestamp() < v_deadline THEN
        v_near := ARRAY(
            SELECT x.id FROM (
                SELECT n.id FROM unnest(v_entities) s(id)
                CROSS JOIN LATERAL (
                    (SELECT x.object_entity_id AS id, x.confidence FROM entity_edges x
                     WHERE x.tenant_id = p_tenant AND x.project_id = p_project AND x.subject_entity_id = s.id
                       AND x.retracted_at IS NULL AND x.valid_from <= v_now AND x.valid_until > v_now
                     ORDER BY x.confidence DESC, x.edge_id LIMIT 50)
                    UNION ALL
                    (SELECT x.subject_entity_id, x.confidence FROM entity_edges x
                     WHERE x.tenant_id = p_tenant AND x.project_id = p_project AND x.object_entity_id = s.id
                       AND x.retracted_at IS NULL AND x.valid_from <= v_now AND x.valid_until > v_now
                     ORDER BY x.confidence DESC, x.edge_id LIMIT 50)) n
                WHERE n.id <> ALL (v_entities)
                GROUP BY n.id ORDER BY max(n.confidence) DESC, n.id LIMIT 50) x);
    ELSE
        timed_out := true;
    END IF;
    IF clock_timestamp() < v_deadline THEN
        notes := ARRAY(
            SELECT DISTINCT n.id FROM unnest(v_entities || v_near) s(id)
            CROSS JOIN LATERAL notes_about(p_tenant, p_project, s.id, p_scope, NULL, 200) n(id)
            ORDER BY n.id LIMIT 200);
    END IF;
    timed_out := timed_out OR clock_timestamp() >= v_deadline;
END
$$;
