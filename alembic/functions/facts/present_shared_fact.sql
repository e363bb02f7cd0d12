-- Returns what a fact of another project shows beside its own row: its names, whether it is contradicted, and the notes
-- it cites as far as they are shared too. No row unless the caller's reach is shared and the fact is shared. Runs as
-- the owner, since the names of other projects are hidden: they are readable only through a fact that is not.
CREATE OR REPLACE FUNCTION present_shared_fact(p_fact uuid)
RETURNS TABLE (
    subject_name text, subject_kind text, predicate_name text, predicate_status text, predicate_cardinality text,
    object_name text, object_kind text, contradicted boolean, evidence uuid[])
LANGUAGE plpgsql STABLE STRICT SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
BEGIN
    IF v_project IS NULL OR current_setting('app.reach', true) IS DISTINCT FROM 'shared' THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT s.canonical, s.kind, p.canonical, p.status, p.cardinality, o.canonical, o.kind,
           EXISTS (SELECT FROM fact_conflicts k
                   WHERE k.tenant_id = v_tenant AND k.fact_a = f.fact_id AND k.status = 'open')
           OR EXISTS (SELECT FROM fact_conflicts k
                      WHERE k.tenant_id = v_tenant AND k.fact_b = f.fact_id AND k.status = 'open'),
           ARRAY(SELECT v.note_id FROM graph_fact_evidence v
                 JOIN memory_notes n ON n.tenant_id = v_tenant AND n.note_id = v.note_id
                 WHERE v.tenant_id = v_tenant AND v.fact_id = f.fact_id AND n.deleted_at IS NULL
                   AND is_shared(n.scope, n.garden_id, n.user_id, n.suppression)
                 ORDER BY v.created_at, v.evidence_id)
    FROM graph_facts f
    JOIN graph_entities s ON s.tenant_id = v_tenant AND s.entity_id = f.subject_entity_id AND s.suppression = 0
    JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = f.predicate_id
    LEFT JOIN graph_entities o ON o.tenant_id = v_tenant AND o.entity_id = f.object_entity_id AND o.suppression = 0
    WHERE f.tenant_id = v_tenant AND f.fact_id = p_fact AND f.project_id <> v_project
      AND is_shared(f.scope, f.garden_id, f.user_id, f.suppression)
      AND (f.object_entity_id IS NULL OR o.entity_id IS NOT NULL);
END
$$;
