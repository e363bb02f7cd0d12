-- Removes an entity from documents, reviews, proposals, texts of other mentions and traces of recall.
-- Returns how many rows of each table were changed. Runs with the settings and rights of erase_entity.
CREATE OR REPLACE FUNCTION erase_derived_content(
    p_tombstone tombstones, p_documents uuid[], p_notes uuid[], p_ids uuid[], p_names text[], p_pattern text,
    p_values text, p_now timestamptz)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := p_tombstone.tenant_id;
    v_project text := p_tombstone.project_id;
    v_count bigint;
    v_counts jsonb := '{}';
BEGIN
    -- Documents keep only how many chunks they had, and when.
    UPDATE documents d
    SET title = NULL, source_url = NULL, error = NULL, raw_content = NULL, author = NULL, tags = '{}',
        content_hash = NULL, content_type = NULL,
        status = CASE WHEN d.status = 'done' THEN 'done' ELSE 'failed' END, updated_at = p_now
    WHERE d.tenant_id = v_tenant AND d.document_id = ANY (p_documents);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('documents', v_count);
    DELETE FROM memory_reviews r
    WHERE r.tenant_id = v_tenant
      AND (r.note_id = ANY (p_notes) OR r.target_note_id = ANY (p_notes)
           OR (p_tombstone.named AND r.project_id = v_project AND r.suppression <> 2
               AND (p_tombstone.scopes IS NULL OR r.scope = ANY (p_tombstone.scopes))
               AND fold_name(concat_ws(' ', r.content, r.reason, r.decision_reason)) ~ p_pattern));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('memory_reviews', v_count);
    -- Proposals about notes that stay.
    UPDATE memory_history h SET proposal = NULL
    WHERE h.tenant_id = v_tenant AND h.proposal IS NOT NULL AND h.note_id <> ALL (p_notes)
      AND (contains_ids(h.proposal::text, p_ids)
           OR (h.project_id = v_project AND h.suppression <> 2
               AND ((p_tombstone.named AND json_matches(h.proposal, p_pattern))
                    OR json_matches(h.proposal, p_values))));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('proposals', v_count);
    -- A note may have changed since it mentioned somebody whose name has this one in it.
    UPDATE note_entity_mentions m SET mention = NULL
    WHERE m.tenant_id = v_tenant AND m.project_id = v_project AND m.suppression <> 2 AND m.note_id <> ALL (p_notes)
      AND p_tombstone.named AND fold_name(m.mention) ~ p_pattern;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('mention_texts', v_count);

    -- Traces of requests for its name are removed even where notes that name it stay; names too short for a pattern are
    -- compared with the requested entity.
    DELETE FROM recall_traces r
    WHERE r.tenant_id = v_tenant
      AND (contains_ids(concat_ws(' ', r.request, r.context, r.results), p_ids)
           OR (r.project_id = v_project
               AND (json_matches(r.request, p_pattern) OR json_matches(r.request, p_values)
                    OR name_key(r.request ->> 'entity') = ANY (p_names)
                    OR name_key(r.request ->> 'entity_uri') = ANY (p_names))));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('recall_traces', v_count);
    RETURN v_counts;
END
$$;
