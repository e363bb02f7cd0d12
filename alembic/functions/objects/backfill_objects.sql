-- Create an object on main for each of these entities of the scope's project without one, and bind it; an existing
-- object of that type and key is bound instead. Return how many were created, and how many were bound to existing
-- objects. Of the owner, since nobody else may write entities.
CREATE OR REPLACE FUNCTION backfill_objects(p_rows json, OUT made bigint, OUT bound bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_main uuid := ensure_main_branch(v_project);
    v_now timestamptz;
    v_row record;
    v_object uuid;
    v_type record;
    v_made uuid[] := '{}';
BEGIN
    IF v_tenant IS NULL OR v_main IS NULL THEN
        RAISE EXCEPTION 'backfill_objects needs tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR SHARE;
    made := 0;
    bound := 0;
    v_now := clock_timestamp();
    FOR v_row IN
        SELECT r.* FROM json_to_recordset(p_rows) AS r(
            entity_id uuid, object_id uuid, type text, key text, title text, properties jsonb, embed_text text,
            content_hash text)
        JOIN graph_entities e ON e.tenant_id = v_tenant AND e.entity_id = r.entity_id
        WHERE e.project_id = v_project AND e.merged_into IS NULL AND e.suppression = 0
          AND e.object_canonical_id IS NULL
        ORDER BY r.entity_id FOR NO KEY UPDATE OF e
    LOOP
        SELECT o.canonical_id INTO v_object FROM graph_objects o
        WHERE o.tenant_id = v_tenant AND o.branch_id = v_main AND o.type = v_row.type AND o.key = v_row.key
          AND o.deleted_at IS NULL AND o.suppression = 0;
        IF NOT FOUND THEN
            SELECT coalesce(s.fts_enabled, true) AS words, coalesce(s.embedding_policy, 'optional') AS policy
            INTO v_type
            FROM (VALUES (true)) x
            LEFT JOIN LATERAL (
                SELECT t.fts_enabled, t.embedding_policy FROM object_type_schemas t
                WHERE t.tenant_id = v_tenant AND t.type = v_row.type AND t.status = 'active'
                UNION ALL
                SELECT g.fts_enabled, g.embedding_policy FROM global_object_type_schemas g
                WHERE g.type = v_row.type AND g.status = 'active'
                LIMIT 1) s ON true;
            INSERT INTO graph_objects (
                tenant_id, branch_id, canonical_id, version_id, version, project_id, type, key, title, labels,
                properties, content_hash, created_at, updated_at, terms, embed_text)
            VALUES (
                v_tenant, v_main, v_row.object_id, v_row.object_id, 1, v_project, v_row.type, v_row.key, v_row.title,
                '{}', v_row.properties, decode(v_row.content_hash, 'hex'), v_now, v_now,
                CASE WHEN v_type.words THEN object_terms(
                    v_tenant, v_project, v_row.title, v_row.key, '{}', object_text(v_row.properties)) ELSE '' END,
                CASE WHEN v_type.policy <> 'disabled' THEN v_row.embed_text END)
            -- A concurrent writer may have created one with that key; the next run binds it.
            ON CONFLICT DO NOTHING
            RETURNING canonical_id INTO v_object;
            CONTINUE WHEN v_object IS NULL;
            INSERT INTO graph_object_versions (
                tenant_id, branch_id, canonical_id, version_id, version, project_id, type, key, title, labels,
                properties, content_hash, change_summary, written_by, created_at)
            VALUES (
                v_tenant, v_main, v_object, v_object, 1, v_project, v_row.type, v_row.key, v_row.title, '{}',
                v_row.properties, decode(v_row.content_hash, 'hex'), version_summary(v_row.properties, NULL), v_agent,
                v_now);
            v_made := v_made || v_object;
            made := made + 1;
        ELSE
            bound := bound + 1;
        END IF;
        UPDATE graph_entities e SET object_canonical_id = v_object
        WHERE e.tenant_id = v_tenant AND e.entity_id = v_row.entity_id;
        PERFORM hide_or_restore_objects(v_tenant, ARRAY[v_object]);
    END LOOP;
    PERFORM queue_units(v_tenant, v_project, 'object', v_made);
END
$$;
