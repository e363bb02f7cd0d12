-- Writes what came of reading a note, in one call: the notes that are derived from it, each with its line of history; a
-- line for every proposal that changed nothing; the job that links its relations, leased by who is about to do it when
-- p_owner is given; and that it is done. A statement that
-- a live note says already is recorded as that. `changed` when the note is no longer what was read: then nothing is
-- written, and it is to be read again. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION apply_extraction(
    p_tenant text, p_project text, p_note uuid, p_version int, p_model text, p_drafts json, p_records json,
    p_link jsonb, p_attempts int, p_owner text, p_lease interval, OUT changed boolean, OUT created int,
    OUT deduped int, OUT link_job uuid, OUT waits boolean)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_source memory_notes;
    v_now timestamptz := clock_timestamp();
    v_made uuid[] := '{}';
BEGIN
    created := 0;
    deduped := 0;
    waits := false;
    SELECT n.* INTO v_source FROM memory_notes n
    WHERE n.tenant_id = p_tenant AND n.note_id = p_note AND n.project_id = p_project FOR UPDATE;
    changed := NOT FOUND OR v_source.deleted_at IS NOT NULL OR v_source.version <> p_version;
    IF changed THEN
        RETURN;
    END IF;
    IF json_array_length(p_drafts) > 0 THEN
        WITH made AS (
            INSERT INTO memory_notes AS n (
                tenant_id, note_id, project_id, agent_id, scope, garden_id, owner_key, type, content, content_hash,
                tags, author, occurred_at, pinned, derived_from, confidence, extraction_model, created_at, updated_at,
                terms, telling)
            SELECT p_tenant, d.note_id, p_project, v_source.agent_id, v_source.scope, v_source.garden_id,
                   v_source.owner_key, d.type, d.content, d.hash, v_source.tags, v_source.author,
                   -- Outside of its thread: there it would stand between what was said.
                   v_source.occurred_at, false, p_note, d.confidence, p_model, v_now, v_now,
                   note_terms(p_tenant, p_project, v_source.author, v_source.occurred_at, v_source.tags, d.content),
                   count_content_terms(p_tenant, p_project, d.content)
            FROM json_to_recordset(p_drafts)
                AS d(note_id uuid, content text, hash text, type text, confidence double precision)
            -- Also where it is said within a thread.
            WHERE NOT EXISTS (
                SELECT FROM memory_notes x
                WHERE x.tenant_id = p_tenant AND x.project_id = p_project AND x.content_hash = d.hash
                  AND x.scope = v_source.scope AND x.owner_key = v_source.owner_key AND x.deleted_at IS NULL)
            ORDER BY d.hash
            ON CONFLICT DO NOTHING
            RETURNING n.note_id
        ) SELECT coalesce(array_agg(m.note_id), '{}') INTO v_made FROM made m;
        created := cardinality(v_made);
        deduped := json_array_length(p_drafts) - created;
    END IF;
    INSERT INTO memory_history (
        tenant_id, history_id, project_id, note_id, agent_id, scope, garden_id, event, version, changed_by, reason,
        new_content, proposal, created_at)
    SELECT p_tenant, make_id(), p_project, d.note_id, v_source.agent_id, v_source.scope, v_source.garden_id, 'created',
           1, 'pipeline', NULL, d.content, d.proposal, v_now
    FROM json_to_recordset(p_drafts) AS d(note_id uuid, content text, proposal jsonb)
    WHERE d.note_id = ANY (v_made)
    UNION ALL
    SELECT p_tenant, make_id(), p_project, p_note, v_source.agent_id, v_source.scope, v_source.garden_id, 'none',
           p_version, 'pipeline', d.proposal ->> 'reason', NULL,
           d.proposal || jsonb_strip_nulls(jsonb_build_object('outcome', 'deduped', 'existing_note_id', (
               SELECT n.note_id FROM memory_notes n
               WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND n.content_hash = d.hash
                 AND n.scope = v_source.scope AND n.owner_key = v_source.owner_key AND n.deleted_at IS NULL
               ORDER BY n.created_at LIMIT 1))), v_now
    FROM json_to_recordset(p_drafts) AS d(note_id uuid, hash text, proposal jsonb)
    WHERE d.note_id <> ALL (v_made)
    UNION ALL
    SELECT p_tenant, make_id(), p_project, p_note, v_source.agent_id, v_source.scope, v_source.garden_id, 'none',
           p_version, 'pipeline', r.reason, NULL, r.proposal, v_now
    FROM json_to_recordset(p_records) AS r(reason text, proposal jsonb);
    IF created > 0 THEN
        PERFORM queue_units(p_tenant, p_project, 'note', v_made);
    END IF;
    IF p_link IS NOT NULL THEN
        link_job := make_id();
        INSERT INTO jobs (
            tenant_id, job_id, project_id, agent_id, kind, payload, dedupe_key, max_attempts, created_by, available_at,
            created_at, status, attempts, lease_owner, lease_expires_at, started_at)
        VALUES (p_tenant, link_job, p_project, v_source.agent_id, 'graph_link', p_link, p_note::text, p_attempts,
                'pipeline', v_now, v_now, 'leased', 1, p_owner, v_now + p_lease, v_now)
        ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            -- One of what the note said before is open: it is to be linked first, and this one after it.
            waits := true;
            UPDATE jobs j SET payload = p_link
            WHERE j.tenant_id = p_tenant AND j.project_id = p_project AND j.kind = 'graph_link'
              AND j.dedupe_key = p_note::text || ':next' AND j.status = 'pending'
            RETURNING j.job_id INTO link_job;
            IF NOT FOUND THEN
                link_job := make_id();
                INSERT INTO jobs (
                    tenant_id, job_id, project_id, agent_id, kind, payload, dedupe_key, max_attempts, created_by,
                    available_at, created_at)
                VALUES (p_tenant, link_job, p_project, v_source.agent_id, 'graph_link', p_link,
                        CASE WHEN NOT EXISTS (
                            SELECT FROM jobs j
                            WHERE j.tenant_id = p_tenant AND j.project_id = p_project AND j.kind = 'graph_link'
                              AND j.dedupe_key = p_note::text || ':next' AND j.status = 'leased')
                        THEN p_note::text || ':next' END, p_attempts, 'pipeline', v_now, v_now);
            END IF;
        END IF;
    END IF;
    UPDATE memory_notes n SET extraction_status = 'completed' WHERE n.tenant_id = p_tenant AND n.note_id = p_note;
END
$$;
