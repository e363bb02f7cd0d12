-- Retention, step 3: deletes up to p_limit notes deleted before p_before with their history, and as many documents, in
-- the scope's tenant or project. Protected notes are kept. Facts and supersessions stay without the note.
-- Stores in the project's settings since when its notes are complete. Returns the counts.
CREATE OR REPLACE FUNCTION purge_notes(p_before timestamptz, p_limit int, OUT notes bigint, OUT documents bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text;
    v_notes uuid[];
    v_patterns text;
    v_last timestamptz;
    v_count bigint;
BEGIN
    notes := 0;
    documents := 0;
    FOR v_project IN SELECT * FROM lock_purgeable_projects(v_tenant, nullif(current_setting('app.project_id', true), '')) LOOP
        IF notes < p_limit THEN
            v_notes := lock_purgeable_notes(v_tenant, v_project, 'notes', p_before, (p_limit - notes)::int);
            IF cardinality(v_notes) > 0 THEN
                DELETE FROM embedding_queue q
                WHERE q.tenant_id = v_tenant AND q.project_id = v_project
                  AND q.model_id IN (SELECT m.model_id FROM embedding_models m)
                  AND q.owner_kind = 'note' AND q.owner_id = ANY (v_notes);
                DELETE FROM graph_fact_supersessions x
                WHERE x.tenant_id = v_tenant AND x.note_id = ANY (v_notes) AND EXISTS (
                    SELECT FROM graph_fact_supersessions o
                    WHERE o.tenant_id = v_tenant AND o.from_fact_id = x.from_fact_id AND o.to_fact_id = x.to_fact_id
                      AND (o.note_id IS NULL
                           OR (o.note_id = ANY (v_notes) AND o.supersession_id < x.supersession_id)));
                UPDATE graph_fact_supersessions x SET note_id = NULL
                WHERE x.tenant_id = v_tenant AND x.note_id = ANY (v_notes);
                WITH deleted AS (
                    DELETE FROM memory_notes n WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_notes)
                    RETURNING n.deleted_at
                )
                SELECT count(*), max(g.deleted_at) INTO v_count, v_last FROM deleted g;
                notes := notes + v_count;
                UPDATE projects p
                SET settings = p.settings || jsonb_build_object('notes_complete_since', v_last)
                WHERE p.tenant_id = v_tenant AND p.project_id = v_project
                  AND coalesce((p.settings ->> 'notes_complete_since')::timestamptz, '-infinity') < v_last;
            END IF;
        END IF;
        CONTINUE WHEN documents >= p_limit;
        -- A document is kept while one of its notes is protected, or its fields name an entity under legal hold.
        SELECT string_agg(p.certain, '|') INTO v_patterns FROM tombstones t
        CROSS JOIN LATERAL name_patterns(v_tenant, t.entity_id) p
        WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND t.legal_hold AND t.named
          AND NOT EXISTS (SELECT FROM tombstone_revocations r
                          WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id);
        WITH pick AS (
            SELECT d.document_id FROM documents d
            WHERE d.tenant_id = v_tenant AND d.project_id = v_project AND d.deleted_at < p_before
              AND d.suppression = 0
              AND (v_patterns IS NULL
                   OR fold_name(concat_ws(',,', d.title, d.author, d.source_url, array_to_string(d.tags, ',,')))
                      !~ v_patterns)
              AND NOT EXISTS (
                  SELECT FROM document_notes x
                  JOIN memory_notes n ON n.tenant_id = v_tenant AND n.note_id = x.note_id
                  WHERE x.tenant_id = v_tenant AND x.document_id = d.document_id
                    AND (x.suppression <> 0 OR n.suppression <> 0
                         OR cardinality(find_protected_notes(v_tenant, v_project, ARRAY[n.note_id])) > 0))
            ORDER BY d.deleted_at, d.document_id LIMIT p_limit - documents FOR UPDATE SKIP LOCKED
        )
        DELETE FROM documents d USING pick WHERE d.tenant_id = v_tenant AND d.document_id = pick.document_id;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        documents := documents + v_count;
    END LOOP;
END
$$;
