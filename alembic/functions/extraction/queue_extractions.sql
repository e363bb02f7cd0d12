-- Enqueues the extraction of notes where the project has it enabled; returns the job of each, also one already open.
-- Derived notes are not extracted, and chunks of documents only when asked for. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION queue_extractions(
    p_tenant text, p_project text, p_notes uuid[], p_key text, p_chunks boolean DEFAULT false)
RETURNS TABLE (note_id uuid, job_id uuid)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    v_pipeline jsonb;
    v_now timestamptz := clock_timestamp();
BEGIN
    SELECT p.settings -> 'pipeline' INTO v_pipeline FROM projects p
    WHERE p.tenant_id = p_tenant AND p.project_id = p_project;
    IF NOT coalesce((v_pipeline ->> 'enabled')::boolean, false) THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH wanted AS MATERIALIZED (
        SELECT n.note_id, n.agent_id, n.garden_id, n.user_id FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes)
          AND (p_chunks OR n.type <> 'document_chunk') AND n.derived_from IS NULL
    ), made AS (
        INSERT INTO jobs AS j (
            tenant_id, job_id, project_id, agent_id, kind, payload, dedupe_key, max_attempts, created_by, available_at,
            created_at, user_id)
        SELECT p_tenant, make_id(), p_project, w.agent_id, 'extract',
               jsonb_strip_nulls(jsonb_build_object('note_id', w.note_id, 'garden_id', w.garden_id)), w.note_id::text,
               coalesce((v_pipeline ->> 'worker_max_retries')::int, 3), p_key, v_now, v_now, w.user_id
        FROM wanted w ORDER BY w.note_id
        ON CONFLICT DO NOTHING
        RETURNING j.dedupe_key, j.job_id
    )
    SELECT w.note_id, coalesce(m.job_id, j.job_id) FROM wanted w
    LEFT JOIN made m ON m.dedupe_key = w.note_id::text
    LEFT JOIN jobs j ON j.tenant_id = p_tenant AND j.project_id = p_project AND j.kind = 'extract'
        AND j.dedupe_key = w.note_id::text AND j.status IN ('pending', 'leased');
END
$$;
