-- Returns the terms of a query and how many units of a kind contain each, the number of units and their average length.
-- Uses the project's statistics for frequent terms and the index for others; without statistics both are counted, up to
-- a limit. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION weigh_terms(
    p_tenant text, p_project text, p_kind text, p_query text, p_terms int,
    OUT terms text[], OUT documents bigint[], OUT total bigint, OUT average double precision)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
DECLARE
    v_language regconfig := project_language(p_tenant, p_project);
    v_query text := fold_words(p_query, true);
    v_rare text[];
    v_counts bigint[];
    v_length bigint;
BEGIN
    SELECT s.documents, s.total_length::double precision / nullif(s.documents, 0) INTO total, average
    FROM lexical_statistics s
    WHERE s.tenant_id = p_tenant AND s.project_id = p_project AND s.kind = p_kind AND s.documents > 0;
    IF NOT FOUND THEN
        IF p_kind = 'note' THEN
            SELECT count(*), sum(d.terms_length) INTO total, v_length FROM (
                SELECT n.terms_length FROM memory_notes n
                WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND n.deleted_at IS NULL LIMIT 20000) d;
        ELSIF p_kind = 'object' THEN
            SELECT count(*), sum(d.terms_length) INTO total, v_length FROM (
                SELECT o.terms_length FROM graph_objects o
                WHERE o.tenant_id = p_tenant AND o.branch_id = ANY (main_branches(p_tenant, p_project))
                  AND o.deleted_at IS NULL LIMIT 20000) d;
        ELSE
            SELECT count(*), sum(d.terms_length) INTO total, v_length FROM (
                SELECT f.terms_length FROM graph_facts f
                WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.retracted_at IS NULL LIMIT 20000) d;
        END IF;
        average := v_length::double precision / nullif(total, 0);
    END IF;
    average := greatest(coalesce(average, 1), 1);
    terms := ARRAY(
        SELECT t.lexeme FROM unnest(to_tsvector(v_language, v_query)) t
        ORDER BY t.positions[1], t.lexeme LIMIT p_terms);
    IF v_query <> p_query AND EXISTS (
        SELECT FROM jobs j
        WHERE j.tenant_id = p_tenant AND j.kind = 'reindex' AND j.project_id = p_project
          AND j.status IN ('pending', 'leased')) THEN
        -- Units that are not reindexed yet have unfolded terms.
        terms := terms || ARRAY(
            SELECT t.lexeme FROM unnest(to_tsvector(v_language, p_query)) t WHERE t.lexeme <> ALL (terms)
            ORDER BY t.positions[1], t.lexeme LIMIT p_terms);
    END IF;
    IF p_kind = 'object' AND EXISTS (
        SELECT FROM branches b JOIN graph_objects o ON o.tenant_id = p_tenant AND o.branch_id = b.branch_id
        WHERE b.tenant_id = p_tenant AND b.project_id IS NULL AND b.name = 'main') THEN
        -- Objects of no project have unstemmed terms.
        terms := ARRAY(
            SELECT t.lexeme FROM unnest(to_tsvector('simple', v_query)) t
            WHERE t.lexeme <> ALL (terms) AND to_tsvector(v_language, t.lexeme) <> ''::tsvector
            ORDER BY t.positions[1], t.lexeme LIMIT p_terms) || terms;
    END IF;
    v_rare := ARRAY(
        SELECT t.term FROM unnest(terms) t(term)
        WHERE NOT EXISTS (
            SELECT FROM lexical_frequencies l
            WHERE l.tenant_id = p_tenant AND l.project_id = p_project AND l.kind = p_kind AND l.term = t.term)
        ORDER BY t.term);
    v_counts := count_documents(p_kind, v_rare, 2000);
    documents := ARRAY(
        SELECT coalesce(l.documents, v_counts[array_position(v_rare, t.term)], 0)
        FROM unnest(terms) WITH ORDINALITY t(term, place)
        LEFT JOIN lexical_frequencies l
            ON l.tenant_id = p_tenant AND l.project_id = p_project AND l.kind = p_kind AND l.term = t.term
        ORDER BY t.place);
    total := greatest(total, (SELECT max(d) FROM unnest(documents) d));
END
$$;
