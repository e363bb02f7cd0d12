-- Returns the terms of a query, how many units of a kind contain each (see weigh_terms), and the ids of the best units
-- by them, as JSON; with p_limit 0 only the terms. Facts have to match the filter. Needs no vector, so that it can run
-- while the query is embedded. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION look_up_terms(
    p_context read_context, p_filter fact_filter, p_kind text, p_query text, p_limit int)
RETURNS text
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_found record;
    v_terms term_query;
    v_documents bigint[];
    v_chosen text[];
    v_hits uuid[] := '{}';
BEGIN
    PERFORM check_as_of(p_context.tenant_id, p_context.project_id, p_context.known_at);
    p_context.valid_at := coalesce(p_context.valid_at, p_context.known_at, clock_timestamp());
    SELECT w.* INTO v_found FROM weigh_terms(p_context.tenant_id, p_context.project_id, p_kind, p_query, 64) w;
    IF p_limit > 0 THEN
        v_terms := ROW(
            v_found.terms, ARRAY(SELECT inverse_frequency(d, v_found.total) FROM unnest(v_found.documents) d),
            v_found.average)::term_query;
        -- A term that no unit contains now may have been in one at a past time.
        v_documents := CASE WHEN p_context.known_at IS NULL THEN v_found.documents ELSE ARRAY(
            SELECT greatest(d.documents, 1) FROM unnest(v_found.documents) WITH ORDINALITY d(documents, place)
            ORDER BY d.place) END;
        IF owner_user() <> '' THEN
            -- A term that is frequent in the project may be rare in what this user and all users have.
            v_documents := ARRAY(
                SELECT least(d.documents, c.documents)
                FROM unnest(v_documents, count_documents(p_kind, v_found.terms, 2000)) WITH ORDINALITY
                    d(documents, counted, place)
                CROSS JOIN LATERAL (SELECT greatest(d.counted, (d.documents > 0)::int) AS documents) c
                ORDER BY d.place);
        END IF;
        v_chosen := choose_terms(v_found.terms, v_documents, 2000);
        IF p_kind = 'fact' THEN
            v_hits := ARRAY(
                SELECT m.fact_id FROM match_facts(
                    p_context, p_filter, v_terms, v_chosen, 4000,
                    CASE WHEN p_filter.include_contradicted THEN p_limit ELSE 4000 END) m
                -- Tested one by one, until there are enough.
                WHERE p_filter.include_contradicted
                   OR NOT is_overruled(p_context.tenant_id, m.fact_id, p_context.valid_at, p_context.known_at,
                                       p_filter.min_confidence, p_filter.min_trust)
                LIMIT p_limit);
        ELSE
            IF p_context.known_at IS NOT NULL THEN
                v_hits := match_past_notes(p_context, v_terms, p_limit);
            END IF;
            v_hits := v_hits || ARRAY(
                SELECT m.note_id FROM match_notes(v_terms, v_chosen, 4000, p_limit, p_context.known_at,
                                                  p_context.scope) m);
        END IF;
    END IF;
    RETURN json_build_object(
        'terms', v_found.terms, 'documents', v_found.documents, 'total', v_found.total, 'average', v_found.average,
        'hits', v_hits);
END
$$;
