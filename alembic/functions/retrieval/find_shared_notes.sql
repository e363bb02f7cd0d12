-- Returns note candidates that other projects share with the caller, the best by terms and the nearest by vector, each
-- as a window of its own (see find_notes). Nothing unless the caller's reach is shared. Runs as the owner: it reads
-- only rows that the caller's policy shows (is_shared), which applies again when the contents are read.
CREATE OR REPLACE FUNCTION find_shared_notes(
    p_context read_context, p_terms term_query, p_vector vector_query, p_limit int)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_hits uuid[];
BEGIN
    IF v_project IS NULL OR current_setting('app.reach', true) IS DISTINCT FROM 'shared' THEN
        RETURN '[]';
    END IF;
    p_context := ROW(v_tenant, v_project, NULL, NULL, p_context.scope)::read_context;
    v_hits := match_shared_notes(v_tenant, v_project, p_context.scope, p_terms, p_limit)
        || nearest_shared(p_context, NULL, p_vector, 'note', p_limit);
    RETURN (
        SELECT coalesce(json_agg(w.unit), '[]')::text
        FROM (
            SELECT n.project_id, array_agg(n.note_id) AS notes FROM memory_notes n
            WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_hits) AND n.project_id <> v_project
              AND is_shared(n.scope, n.garden_id, n.user_id, n.suppression)
            GROUP BY n.project_id ORDER BY n.project_id) p
        CROSS JOIN LATERAL json_array_elements(find_notes(
            ROW(v_tenant, p.project_id, NULL, NULL, p_context.scope)::read_context, p_terms.terms, p_vector, 0, 0,
            p.notes)::json) w(unit));
END
$$;
