-- Returns the notes that contain one of the chosen terms, the best by BM25 over all terms of the query. Reads at most
-- p_most notes. Runs as the owner, because the index of terms is not used under a policy: visibility follows from the
-- caller's settings alone, and the policy applies again when a note is read. The tenant is compared by IS NOT DISTINCT
-- FROM so that no other index is chosen.
CREATE OR REPLACE FUNCTION match_notes(
    p_terms term_query, p_chosen text[], p_most int, p_limit int, p_known timestamptz, p_scope text)
RETURNS TABLE (note_id uuid, score double precision)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := nullif(current_setting('app.agent_id', true), '');
    v_gardens uuid[] := coalesce(nullif(current_setting('app.gardens', true), '')::uuid[], '{}');
    v_user text := current_setting('app.user_id', true);
    v_holds boolean := coalesce(current_setting('app.reach', true), '') = 'legal_hold';
    v_average double precision := p_terms.average;
    v_keys text[];
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL OR cardinality(p_chosen) = 0 THEN
        RETURN;
    END IF;
    v_keys := search_keys(v_tenant, v_project, v_user, p_chosen);
    RETURN QUERY
    WITH found AS MATERIALIZED (
        SELECT n.note_id, n.terms_length, ts_filter(setweight(n.terms, 'A', p_terms.terms), '{a}') AS terms
        FROM memory_notes n
        WHERE owned_keys(n.tenant_id, n.project_id, n.user_id, tsvector_to_array(n.terms)) && v_keys
          AND n.tenant_id IS NOT DISTINCT FROM v_tenant AND n.project_id IS NOT DISTINCT FROM v_project
          AND (n.suppression = 0 OR (n.suppression = 2 AND v_holds))
          AND is_visible(n.scope, n.agent_id, n.garden_id, n.user_id, v_agent, v_gardens, v_user)
          AND (p_scope IS NULL OR n.scope = p_scope)
          AND note_stands(n.created_at, n.deleted_at, p_known)
        LIMIT p_most
    )
    SELECT f.note_id, sum(bm25_score(t.idf, f.frequency, f.terms_length, v_average))
    FROM (
        -- unnest in the list of columns: in FROM, each set would be stored before it is read.
        SELECT w.note_id, w.terms_length, (w.word).lexeme,
               cardinality((w.word).positions)::double precision AS frequency
        FROM (SELECT f.note_id, f.terms_length, unnest(f.terms) AS word FROM found f OFFSET 0) w
    ) f
    JOIN unnest(p_terms.terms, p_terms.idf) t(term, idf) ON t.term = f.lexeme
    GROUP BY f.note_id ORDER BY 2 DESC, 1 LIMIT p_limit;
END
$$;
