-- The terms of a query with what they weigh among the notes or facts of a project (see weigh_terms), and the ids of those
-- that are best by them, as JSON; with p_limit 0 the terms alone. Needs no vector, so it is asked while one is made. Runs
-- with the rights of its caller.
CREATE OR REPLACE FUNCTION recall_words(
    p_tenant text, p_project text, p_kind text, p_query text, p_limit int, p_valid timestamptz, p_known timestamptz,
    p_scope text)
RETURNS text
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_valid timestamptz := coalesce(p_valid, p_known, clock_timestamp());
    v_terms record;
    v_idf double precision[];
    v_looked bigint[];
    v_chosen text[];
    v_hits uuid[] := '{}';
BEGIN
    PERFORM check_as_of(p_tenant, p_project, p_known);
    SELECT w.* INTO v_terms FROM weigh_terms(p_tenant, p_project, p_kind, p_query, 64) w;
    v_idf := ARRAY(SELECT ln(1 + (v_terms.total - d + 0.5) / (d + 0.5)) FROM unnest(v_terms.documents) d);
    IF p_limit > 0 THEN
        -- What stands nowhere any more may have stood somewhere then.
        v_looked := CASE WHEN p_known IS NULL THEN v_terms.documents ELSE ARRAY(
            SELECT greatest(d.documents, 1) FROM unnest(v_terms.documents) WITH ORDINALITY d(documents, place)
            ORDER BY d.place) END;
        v_chosen := choose_terms(v_terms.terms, v_looked, 2000);
        IF p_kind = 'fact' THEN
            v_hits := ARRAY(
                SELECT m.fact_id FROM match_facts(
                    v_terms.terms, v_idf, v_chosen, v_terms.average, 4000, p_limit, v_valid, p_known, p_scope) m);
        ELSE
            IF p_known IS NOT NULL THEN
                -- What was changed or deleted since is found by what it said then, and no index has that.
                v_hits := ARRAY(
                    SELECT n.note_id FROM memory_notes n
                    WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND n.created_at <= p_known
                      AND n.updated_at > p_known AND n.version > 1
                    ORDER BY n.updated_at DESC, n.note_id LIMIT 500);
            END IF;
            v_hits := v_hits || ARRAY(
                SELECT m.note_id FROM match_notes(
                    v_terms.terms, v_idf, v_chosen, v_terms.average, 4000, p_limit, p_known, p_scope) m);
        END IF;
    END IF;
    RETURN json_build_object(
        'terms', v_terms.terms, 'idf', v_idf, 'total', v_terms.total, 'average', v_terms.average, 'hits', v_hits);
END
$$;
