-- Returns fact candidates with a score in every channel, as JSON (see present_facts): the best by terms (p_lexical),
-- the nearest by vector (p_near), and facts of entities a few edges away from these, from the facts that cite p_notes
-- and from p_cards. With p_entity all facts of that entity instead. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_facts(
    p_context read_context, p_filter fact_filter, p_terms term_query, p_vector vector_query, p_entity uuid,
    p_lexical uuid[], p_near uuid[], p_notes uuid[], p_cards uuid[], p_depth int, p_graph_limit int)
RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_found uuid[] := p_lexical;
    v_seeds uuid[] := '{}';
    v_reached uuid[] := '{}';
    v_scores double precision[] := '{}';
    v_hops int[] := '{}';
BEGIN
    PERFORM check_as_of(p_context.tenant_id, p_context.project_id, p_context.known_at);
    p_context.valid_at := coalesce(p_context.valid_at, p_context.known_at, clock_timestamp());
    IF p_entity IS NOT NULL THEN
        v_found := select_facts(p_context, p_filter, p_terms, p_entity);
    ELSE
        IF p_filter.relations IS NOT NULL THEN
            -- The best facts of all predicates may include none with these.
            v_found := v_found || select_facts(p_context, p_filter, p_terms, NULL);
        END IF;
        IF p_depth > 0 THEN
            v_seeds := find_seeds(p_context, p_filter, p_lexical[1:10], p_near[1:10], p_notes, p_cards);
        END IF;
        IF cardinality(v_seeds) > 0 THEN
            SELECT coalesce(array_agg(g.fact_id), '{}'), coalesce(array_agg(g.score), '{}'),
                   coalesce(array_agg(g.hops), '{}')
            INTO v_reached, v_scores, v_hops
            FROM reach_facts(p_context, p_filter, v_seeds, p_depth, p_graph_limit) g;
        END IF;
    END IF;
    RETURN present_facts(p_context, p_filter, p_terms, p_vector, v_found || p_near, v_reached, v_scores, v_hops);
END
$$;
