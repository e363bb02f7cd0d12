-- Returns the objects that contain one of the chosen terms, the best by BM25 over all terms of the query: heads of the
-- project or of no project, on these branches, or on main. Runs as the owner, see match_notes.
CREATE OR REPLACE FUNCTION match_objects(
    p_terms text[], p_idf double precision[], p_chosen text[], p_average double precision, p_most int, p_limit int,
    p_branches uuid[] DEFAULT NULL)
RETURNS TABLE (canonical_id uuid, branch_id uuid, score double precision)
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
    v_branches uuid[];
    v_keys text[];
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL OR cardinality(p_chosen) = 0 THEN
        RETURN;
    END IF;
    v_branches := coalesce(p_branches, main_branches(v_tenant, v_project));
    v_keys := lexical_keys(v_tenant, v_project, p_chosen) || lexical_keys(v_tenant, '', p_chosen);
    RETURN QUERY
    WITH found AS MATERIALIZED (
        SELECT o.canonical_id, o.branch_id, o.terms_length, ts_filter(setweight(o.terms, 'A', p_terms), '{a}') AS terms
        FROM graph_objects o
        WHERE lexical_keys(o.tenant_id, coalesce(o.project_id, ''), tsvector_to_array(o.terms)) && v_keys
          AND o.tenant_id IS NOT DISTINCT FROM v_tenant
          AND is_visible_object(o.project_id, o.suppression, v_project)
          AND o.branch_id = ANY (v_branches) AND o.deleted_at IS NULL
        LIMIT p_most
    )
    SELECT f.canonical_id, f.branch_id,
           sum(bm25_score(t.idf, f.frequency, f.terms_length, p_average))
    FROM (
        -- unnest in the list of columns: in FROM, each set would be stored before it is read.
        SELECT w.canonical_id, w.branch_id, w.terms_length, (w.word).lexeme,
               cardinality((w.word).positions)::double precision AS frequency
        FROM (SELECT f.canonical_id, f.branch_id, f.terms_length, unnest(f.terms) AS word FROM found f OFFSET 0) w
    ) f
    JOIN unnest(p_terms, p_idf) t(term, idf) ON t.term = f.lexeme
    GROUP BY f.canonical_id, f.branch_id ORDER BY 3 DESC, 1, 2 LIMIT p_limit;
END
$$;
