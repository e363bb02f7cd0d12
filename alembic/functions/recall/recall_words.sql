-- The terms of a query with how many of the notes or facts of a project have them (see weigh_terms), and the ids of those
-- that are best by them, as JSON; with p_limit 0 the terms alone. Of facts only those that are sure and trusted enough,
-- and without p_contradicted none that a better one contradicts. Needs no vector, so it is asked while one is made. Runs
-- with the rights of its caller.
CREATE OR REPLACE FUNCTION recall_words(
    p_tenant text, p_project text, p_kind text, p_query text, p_limit int, p_valid timestamptz, p_known timestamptz,
    p_scope text, p_confidence double precision, p_trust double precision, p_contradicted boolean)
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
                    v_terms.terms, v_idf, v_chosen, v_terms.average, 4000,
                    CASE WHEN p_contradicted THEN p_limit ELSE 4000 END, v_valid, p_known, p_scope, p_confidence,
                    p_trust) m
                -- One after the other, until there are enough.
                WHERE p_contradicted OR NOT is_overruled(p_tenant, m.fact_id, v_valid, p_known, p_confidence, p_trust)
                LIMIT p_limit);
        ELSE
            IF p_known IS NOT NULL THEN
                -- What was changed or deleted since is found by what it said then, and no index has that.
                v_hits := ARRAY(
                    SELECT x.note_id FROM (
                        SELECT n.note_id, tsvector_to_array(
                                   note_terms_then(p_tenant, p_project, n.note_id, p_known)) AS terms
                        FROM (
                            SELECT n.note_id FROM memory_notes n
                            WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND n.created_at <= p_known
                              AND n.updated_at > p_known AND n.version > 1 AND n.suppression = 0
                              AND (p_scope IS NULL OR n.scope = p_scope)
                            ORDER BY n.updated_at DESC, n.note_id LIMIT 5000) n
                        OFFSET 0) x
                    WHERE x.terms && v_terms.terms
                    ORDER BY (SELECT sum(t.idf) FROM unnest(v_terms.terms, v_idf) t(term, idf)
                              WHERE t.term = ANY (x.terms)) DESC, x.note_id LIMIT p_limit);
            END IF;
            v_hits := v_hits || ARRAY(
                SELECT m.note_id FROM match_notes(
                    v_terms.terms, v_idf, v_chosen, v_terms.average, 4000, p_limit, p_known, p_scope) m);
        END IF;
    END IF;
    RETURN json_build_object(
        'terms', v_terms.terms, 'documents', v_terms.documents, 'total', v_terms.total, 'average', v_terms.average,
        'hits', v_hits);
END
$$;
