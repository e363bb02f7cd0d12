-- Creates those of the named predicates that are wanted and missing (pending and multi), copies predicates of the
-- installation at their first use, and returns the ids by reference. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION make_predicates(p_tenant text, p_project text, p_names json, p_wanted int[])
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_known uuid[];
    v_missing int;
    v_now timestamptz := clock_timestamp();
BEGIN
    SELECT array_agg(r.predicate_id ORDER BY r.ref),
           count(*) FILTER (WHERE r.ref = ANY (p_wanted) AND (r.predicate_id IS NULL OR r.copy))
    INTO v_known, v_missing
    FROM resolve_predicates(p_tenant, p_project, p_names) r;
    IF v_missing = 0 THEN
        RETURN v_known;
    END IF;
    INSERT INTO graph_predicates (tenant_id, predicate_id, scope_key, project_id, canonical, canonical_norm,
                                  cardinality, status, global, created_at, updated_at)
    SELECT p_tenant, g.predicate_id, '__global__', NULL, g.canonical, g.canonical_norm, g.cardinality, g.status, true,
           v_now, v_now
    FROM global_predicates g
    JOIN resolve_predicates(p_tenant, p_project, p_names) r ON r.predicate_id = g.predicate_id
    WHERE r.copy AND r.ref = ANY (p_wanted)
    ORDER BY g.canonical_norm
    FOR SHARE OF g
    ON CONFLICT DO NOTHING;
    INSERT INTO graph_predicates (tenant_id, predicate_id, scope_key, project_id, canonical, canonical_norm,
                                  cardinality, status, created_at, updated_at)
    SELECT p_tenant, n.new_id, p_tenant || ':' || p_project, p_project, n.name, n.norm, 'multi', 'pending', v_now, v_now
    FROM json_to_recordset(p_names) AS n(ref int, new_id uuid, norm text, name text)
    WHERE n.ref = ANY (p_wanted) AND v_known[n.ref] IS NULL AND n.norm IS NOT NULL
    ORDER BY n.norm COLLATE "C"
    ON CONFLICT DO NOTHING;
    RETURN ARRAY(SELECT r.predicate_id FROM resolve_predicates(p_tenant, p_project, p_names) r ORDER BY r.ref);
END
$$;
