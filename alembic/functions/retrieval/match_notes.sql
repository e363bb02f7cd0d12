-- The notes that have one of these terms and are best by BM25 over all terms of the query (k1 .9, b .6).
-- Of the owner, because an index of terms is not used under a policy: what the caller may read is asked here by hand,
-- from the settings and from nowhere else, and again by the policy when the note is read. The tenant is compared in a way
-- no other index serves.
CREATE OR REPLACE FUNCTION match_notes(
    p_terms text[], p_idf double precision[], p_chosen text[], p_average double precision, p_most int, p_limit int,
    p_known timestamptz, p_scope text)
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
    v_keys text[];
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL OR cardinality(p_chosen) = 0 THEN
        RETURN;
    END IF;
    v_keys := lexical_keys(v_tenant, v_project, p_chosen);
    RETURN QUERY
    WITH found AS MATERIALIZED (
        SELECT n.note_id, n.terms_length, ts_filter(setweight(n.terms, 'A', p_terms), '{a}') AS terms
        FROM memory_notes n
        WHERE lexical_keys(n.tenant_id, n.project_id, tsvector_to_array(n.terms)) && v_keys
          AND n.tenant_id IS NOT DISTINCT FROM v_tenant AND n.project_id IS NOT DISTINCT FROM v_project
          AND n.suppression = 0
          AND (n.scope <> 'agent_private' OR n.agent_id = v_agent)
          AND (n.garden_id IS NULL OR n.garden_id = ANY (v_gardens))
          AND (p_scope IS NULL OR n.scope = p_scope)
          AND (n.deleted_at IS NULL OR n.deleted_at > p_known)
          AND (p_known IS NULL OR n.created_at <= p_known)
        LIMIT p_most
    )
    SELECT f.note_id, sum(t.idf * f.tf * 1.9 / (f.tf + 0.9 * (0.4 + 0.6 * f.terms_length / p_average)))
    FROM (
        -- Taken apart in the list of columns: as a table, each would be stored before it is read.
        SELECT w.note_id, w.terms_length, (w.word).lexeme, cardinality((w.word).positions)::double precision AS tf
        FROM (SELECT f.note_id, f.terms_length, unnest(f.terms) AS word FROM found f OFFSET 0) w
    ) f
    JOIN unnest(p_terms, p_idf) t(term, idf) ON t.term = f.lexeme
    GROUP BY f.note_id ORDER BY 2 DESC, 1 LIMIT p_limit;
END
$$;
