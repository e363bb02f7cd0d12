-- Puts all timelines of one predicate in order: each value ends where the next one starts; of those with the same start
-- the last written one stays. Hidden facts are left out. Runs with the rights of its caller, who has locked the
-- predicate.
CREATE OR REPLACE FUNCTION order_timelines(p_tenant text, p_agent text, p_predicate uuid, p_now timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_place record;
BEGIN
    FOR v_place IN
        WITH live AS (
            SELECT f.project_id, f.fact_id, f.valid_from, f.valid_until, lead(f.valid_from) OVER timeline AS next_from,
                   lead(f.fact_id) OVER timeline AS next_id
            FROM graph_facts f
            WHERE f.tenant_id = p_tenant AND f.predicate_id = p_predicate AND f.retracted_at IS NULL
              AND f.suppression = 0
            WINDOW timeline AS (PARTITION BY f.project_id, f.scope, f.owner_key, f.subject_entity_id
                                ORDER BY f.valid_from, f.created_at, f.fact_id)
        )
        SELECT l.project_id, array_agg(l.fact_id) AS facts, array_agg(l.next_id) AS nexts,
               array_agg(l.next_from) AS ends, array_agg(p_now) AS moments,
               array_agg(l.fact_id) FILTER (WHERE l.valid_from = l.next_from) AS replaced,
               array_agg(p_now) FILTER (WHERE l.valid_from = l.next_from) AS replaced_at,
               array_agg(l.fact_id) FILTER (WHERE l.valid_from < l.next_from) AS ended,
               array_agg(l.next_from) FILTER (WHERE l.valid_from < l.next_from) AS ended_to,
               array_agg(p_now) FILTER (WHERE l.valid_from < l.next_from) AS ended_at
        FROM live l WHERE l.valid_until > l.next_from GROUP BY l.project_id
    LOOP
        PERFORM set_ends(p_tenant, v_place.project_id, v_place.ended, v_place.ended_to, v_place.ended_at);
        PERFORM mark_retracted(p_tenant, v_place.project_id, p_agent, v_place.replaced, 'corrected', NULL,
                          v_place.replaced_at);
        INSERT INTO graph_fact_supersessions (
            tenant_id, project_id, supersession_id, from_fact_id, to_fact_id, note_id, effective_at, created_at,
            user_id)
        SELECT p_tenant, v_place.project_id, make_id(), u.older, u.newer, NULL, u.ends, p_now, f.user_id
        FROM unnest(v_place.facts, v_place.nexts, v_place.ends) u(older, newer, ends)
        JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_id = u.older
        ON CONFLICT DO NOTHING;
    END LOOP;
END
$$;
