-- Retention, step 2: deletes the vectors and queue entries of up to p_limit notes deleted before p_before, in the scope's
-- tenant or project. Protected notes are kept. Returns how many vectors were deleted.
CREATE OR REPLACE FUNCTION purge_vectors(p_before timestamptz, p_limit int)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_models smallint[] := ARRAY(SELECT m.model_id FROM embedding_models m);
    v_now timestamptz := clock_timestamp();
    v_project text;
    v_notes uuid[];
    v_selected int := 0;
    v_count bigint;
    v_total bigint := 0;
BEGIN
    FOR v_project IN SELECT * FROM lock_purgeable_projects(v_tenant, nullif(current_setting('app.project_id', true), '')) LOOP
        EXIT WHEN v_selected >= p_limit;
        -- Writers of vectors lock these rows first too, so that the two cannot deadlock.
        PERFORM FROM embedding_counts c WHERE c.tenant_id = v_tenant AND c.project_id = v_project
        ORDER BY c.model_id, c.view FOR UPDATE;
        v_notes := lock_purgeable_notes(v_tenant, v_project, 'vectors', p_before, p_limit - v_selected);
        CONTINUE WHEN cardinality(v_notes) = 0;
        v_selected := v_selected + cardinality(v_notes);
        DELETE FROM embedding_queue q
        WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = ANY (v_models)
          AND q.owner_kind = 'note' AND q.owner_id = ANY (v_notes);
        WITH deleted AS (
            DELETE FROM embeddings e
            WHERE e.tenant_id = v_tenant AND e.model_id = ANY (v_models) AND e.view IN ('self', 'context')
              AND e.owner_kind = 'note' AND e.owner_id = ANY (v_notes)
            RETURNING e.model_id, e.view
        ), counted AS (
            UPDATE embedding_counts c
            SET vectors = greatest(0, c.vectors - g.number), notes = greatest(0, c.notes - g.number), counted_at = v_now
            FROM (SELECT g.model_id, g.view, count(*) AS number FROM deleted g GROUP BY g.model_id, g.view) g
            WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.model_id = g.model_id AND c.view = g.view
            RETURNING c.model_id
        )
        SELECT count(*) INTO v_count FROM deleted;
        v_total := v_total + v_count;
    END LOOP;
    RETURN v_total;
END
$$;
