-- Destroys everything of an end user in one project: notes with their history and what was derived from them, documents,
-- facts, entities and names, cards, vectors, reviews, traces, jobs, and what stored responses contain of it; revokes the
-- keys that act for the user. Afterwards every table is searched for the user and for the ids of what was destroyed:
-- what is left is a bug and undoes everything. Returns a report as JSON; `refused` when a legal hold forbids it.
CREATE OR REPLACE FUNCTION erase_user(p_erasure uuid, p_user text, p_job uuid)
RETURNS TABLE (refused text, report jsonb)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_erasure user_erasures;
    -- What the functions of erasure take: everything in every scope, and nothing by name.
    v_subject tombstones;
    v_notes uuid[];
    v_facts uuid[];
    v_entities uuid[];
    v_documents uuid[];
    v_ids uuid[];
    v_counts jsonb;
    v_left jsonb;
    v_looked bigint;
    v_now timestamptz;
BEGIN
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR NO KEY UPDATE;
    SELECT e.* INTO v_erasure FROM user_erasures e
    WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.erasure_id = p_erasure
      AND e.user_hash = user_hash(v_tenant, v_project, p_user) FOR UPDATE;
    IF NOT FOUND OR v_erasure.erased_at IS NOT NULL OR coalesce(p_user, '') IN ('', '*') THEN
        RETURN QUERY SELECT CASE WHEN v_erasure.erased_at IS NULL THEN 'erasure_not_found' ELSE 'already_erased' END,
                            NULL::jsonb;
        RETURN;
    END IF;
    IF is_user_held(v_tenant, v_project, p_user) THEN
        RETURN QUERY SELECT 'legal_hold', NULL::jsonb;
        RETURN;
    END IF;
    v_now := clock_timestamp();
    v_notes := ARRAY(SELECT n.note_id FROM memory_notes n
                     WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.user_id = p_user);
    v_facts := ARRAY(SELECT f.fact_id FROM graph_facts f
                     WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.user_id = p_user);
    v_entities := ARRAY(SELECT e.entity_id FROM graph_entities e
                        WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.user_id = p_user);
    v_documents := ARRAY(SELECT d.document_id FROM documents d
                         WHERE d.tenant_id = v_tenant AND d.project_id = v_project AND d.user_id = p_user);
    v_ids := v_notes || v_facts || v_entities || v_documents;
    v_subject.tenant_id := v_tenant;
    v_subject.project_id := v_project;
    v_subject.named := false;

    v_counts := erase_stored_content(v_subject, p_job, v_ids, v_documents, NULL, NULL, v_now);
    v_counts := v_counts || erase_derived_content(v_subject, v_documents, v_notes, v_ids, '{}', NULL, NULL, v_now);
    v_counts := v_counts || erase_facts(v_subject, v_facts, '{}', v_notes, '{}');
    v_counts := v_counts || erase_notes(v_tenant, v_notes, v_entities);
    v_counts := v_counts || erase_user_rows(v_tenant, v_project, p_user, p_job, v_now);
    v_counts := v_counts || jsonb_build_object('lexical_frequencies', recount_terms(v_tenant, v_project));

    SELECT user_residue(v_tenant, v_project, p_user) || coalesce(jsonb_agg(jsonb_build_object(
               'table', r.table_name, 'column', r.column_name, 'rows', r.hits)) FILTER (WHERE r.kind = 'id'), '[]'),
           max(r.hits) FILTER (WHERE r.kind = 'looked')
    INTO v_left, v_looked
    FROM find_residue(v_tenant, v_ids, NULL, NULL, NULL) r;
    IF v_left <> '[]' THEN
        RAISE EXCEPTION 'erasure left rows behind: %', v_left;
    END IF;
    UPDATE user_erasures e SET erased_at = v_now WHERE e.tenant_id = v_tenant AND e.erasure_id = p_erasure;
    PERFORM record_event('erasure_completed', v_erasure.key_id, jsonb_build_object(
        'erasure_id', p_erasure, 'facts', cardinality(v_facts), 'notes', cardinality(v_notes)));
    RETURN QUERY SELECT NULL::text, jsonb_build_object(
        'counts', v_counts, 'columns_checked', v_looked, 'requested_at', v_erasure.created_at, 'completed_at', v_now,
        'user_hash', encode(v_erasure.user_hash, 'hex'));
END
$$;
