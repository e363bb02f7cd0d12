-- Creates those of the named entities that are wanted and missing, sets a kind where there was none, and returns the
-- ids by reference. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION make_entities(p_tenant text, p_project text, p_names json, p_known uuid[], p_wanted int[])
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_known uuid[] := p_known;
    v_user text := owner_user();
    v_now timestamptz := clock_timestamp();
BEGIN
    IF EXISTS (SELECT FROM unnest(p_wanted) w(ref) WHERE p_known[w.ref] IS NULL) THEN
        -- In the order of names, so that writers of the same new names do not deadlock.
        INSERT INTO graph_entities (tenant_id, entity_id, project_id, canonical, canonical_norm, kind, created_at,
                                    updated_at, user_id)
        SELECT p_tenant, n.new_id, p_project, n.canonical, n.norm, n.kind, v_now, v_now, v_user
        FROM json_to_recordset(p_names) AS n(ref int, new_id uuid, norm text, canonical text, kind text)
        JOIN unnest(p_wanted) w(ref) ON w.ref = n.ref
        WHERE p_known[n.ref] IS NULL
        ORDER BY n.norm COLLATE "C"
        ON CONFLICT (tenant_id, project_id, canonical_norm, user_id) DO NOTHING;
        SELECT array_agg(coalesce(p_known[n.ref], e.merged_into, e.entity_id) ORDER BY n.ref) INTO v_known
        FROM json_to_recordset(p_names) AS n(ref int, norm text)
        LEFT JOIN LATERAL (
            SELECT e.merged_into, e.entity_id FROM graph_entities e
            WHERE p_known[n.ref] IS NULL AND e.tenant_id = p_tenant AND e.project_id = p_project
              AND e.canonical_norm = n.norm AND e.user_id = v_user
            OFFSET 0
        ) e ON true;
    END IF;
    IF EXISTS (SELECT FROM json_to_recordset(p_names) AS n(kind text) WHERE n.kind IS NOT NULL) THEN
        UPDATE graph_entities e SET kind = n.kind, updated_at = v_now
        FROM json_to_recordset(p_names) AS n(ref int, kind text)
        JOIN unnest(p_wanted) w(ref) ON w.ref = n.ref
        WHERE n.kind IS NOT NULL AND e.tenant_id = p_tenant AND e.entity_id = v_known[n.ref] AND e.kind IS NULL
          AND e.suppression = 0
          AND e.entity_id = ANY (v_known);
    END IF;
    RETURN v_known;
END
$$;
