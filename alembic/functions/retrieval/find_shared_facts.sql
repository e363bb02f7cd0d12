-- Returns fact candidates that other projects share with the caller (see present_facts): the best by terms and the
-- nearest by vector; or, with the name of an entity or a reference to a predicate, the newest with those. Nothing
-- unless the caller's reach is shared. Runs as the owner, see find_shared_notes.
CREATE OR REPLACE FUNCTION find_shared_facts(
    p_context read_context, p_filter fact_filter, p_terms term_query, p_vector vector_query, p_entity text,
    p_predicate json, p_limit int)
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
    v_scope text := p_context.scope;
    v_valid timestamptz := coalesce(p_context.valid_at, clock_timestamp());
    v_subjects uuid[] := CASE WHEN p_entity IS NOT NULL THEN ARRAY(SELECT shared_entities(p_entity)) END;
    v_hits uuid[];
BEGIN
    IF v_project IS NULL OR current_setting('app.reach', true) IS DISTINCT FROM 'shared' THEN
        RETURN '[]';
    END IF;
    p_context := ROW(v_tenant, v_project, v_valid, NULL, v_scope)::read_context;
    p_filter.relations := CASE WHEN p_predicate IS NOT NULL THEN ARRAY(SELECT shared_predicates(p_predicate)) END;
    IF v_subjects IS NULL AND p_filter.relations IS NULL THEN
        v_hits := match_shared_facts(p_context, p_filter, p_terms, p_limit)
            || nearest_shared(p_context, p_filter, p_vector, 'fact', p_limit);
    ELSE
        v_hits := ARRAY(
            SELECT f.fact_id FROM graph_facts f
            WHERE f.tenant_id = v_tenant AND f.project_id <> v_project
              AND is_shared(f.scope, f.garden_id, f.user_id, f.suppression) AND (v_scope IS NULL OR f.scope = v_scope)
              AND (v_subjects IS NULL OR f.subject_entity_id = ANY (v_subjects))
              AND (p_filter.relations IS NULL OR f.predicate_id = ANY (p_filter.relations))
              AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,
                              v_tenant, v_valid, NULL)
              AND f.confidence > 0 AND f.confidence >= p_filter.min_confidence
              AND f.confidence * f.source_trust >= p_filter.min_trust
            ORDER BY f.created_at DESC, f.fact_id LIMIT p_limit);
    END IF;
    RETURN (
        SELECT coalesce(json_agg(w.unit), '[]')::text
        FROM (
            SELECT f.project_id, array_agg(f.fact_id) AS facts FROM graph_facts f
            WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_hits) AND f.project_id <> v_project
              AND is_shared(f.scope, f.garden_id, f.user_id, f.suppression)
            GROUP BY f.project_id ORDER BY f.project_id) p
        CROSS JOIN LATERAL json_array_elements(present_facts(
            ROW(v_tenant, p.project_id, v_valid, NULL, v_scope)::read_context, p_filter, p_terms, p_vector, p.facts,
            '{}', '{}', '{}')::json) w(unit));
END
$$;
