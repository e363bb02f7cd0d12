-- Returns how many units of a kind that the caller may read contain each of these terms, counted up to p_most. Runs as
-- the owner, see match_notes.
CREATE OR REPLACE FUNCTION count_documents(p_kind text, p_terms text[], p_most int)
RETURNS bigint[]
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
    v_branches uuid[];
    v_counts bigint[] := '{}';
    v_keys text[];
    v_count bigint;
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RETURN v_counts;
    END IF;
    IF p_kind = 'object' THEN
        v_branches := main_branches(v_tenant, v_project);
    END IF;
    FOR i IN 1 .. cardinality(p_terms) LOOP
        v_keys := search_keys(v_tenant, v_project, v_user, p_terms[i:i]);
        IF p_kind = 'object' THEN
            v_keys := v_keys || lexical_keys(v_tenant, '', p_terms[i:i]);
        END IF;
        IF p_kind = 'note' THEN
            SELECT count(*) INTO v_count FROM (
                SELECT FROM memory_notes n
                WHERE owned_keys(n.tenant_id, n.project_id, n.user_id, tsvector_to_array(n.terms)) && v_keys
                  AND n.tenant_id IS NOT DISTINCT FROM v_tenant AND n.project_id IS NOT DISTINCT FROM v_project
                  AND n.deleted_at IS NULL AND n.suppression = 0
                  AND is_visible(n.scope, n.agent_id, n.garden_id, n.user_id, v_agent, v_gardens, v_user)
                LIMIT p_most) d;
        ELSIF p_kind = 'object' THEN
            SELECT count(*) INTO v_count FROM (
                SELECT FROM graph_objects o
                WHERE lexical_keys(o.tenant_id, coalesce(o.project_id, ''), tsvector_to_array(o.terms)) && v_keys
                  AND o.tenant_id IS NOT DISTINCT FROM v_tenant
                  AND (o.project_id IS NULL OR o.project_id IS NOT DISTINCT FROM v_project)
                  AND o.branch_id = ANY (v_branches) AND o.deleted_at IS NULL AND o.suppression = 0
                LIMIT p_most) d;
        ELSE
            SELECT count(*) INTO v_count FROM (
                SELECT FROM graph_facts f
                WHERE owned_keys(f.tenant_id, f.project_id, f.user_id, tsvector_to_array(f.terms)) && v_keys
                  AND f.tenant_id IS NOT DISTINCT FROM v_tenant AND f.project_id IS NOT DISTINCT FROM v_project
                  AND f.retracted_at IS NULL AND f.suppression = 0
                  AND is_visible(f.scope, f.agent_id, f.garden_id, f.user_id, v_agent, v_gardens, v_user)
                LIMIT p_most) d;
        END IF;
        v_counts := v_counts || v_count;
    END LOOP;
    RETURN v_counts;
END
$$;
