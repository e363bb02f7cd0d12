-- Destroys what a tombstone with `erase` hides: facts of the entity and facts that point to it with all that hangs on
-- them, notes that mention it with their history and what was derived from them, its names, objects that are bound to it or
-- name it with their versions and relationships, what is told of documents that name it, and what was kept of it in jobs, proposals, stored answers, reasons and sources. What remains is the tombstone without content. Then it looks through every column of
-- every table; an id that is left is a mistake of ours and undoes everything. Answers what it did, as JSON.
-- A legal hold forbids it, and so does a grace period that is not over: `refused`. What a hold keeps of others is not
-- touched, whatever it says.
CREATE OR REPLACE FUNCTION erase_entity(p_tombstone uuid, p_job uuid)
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
    v_tombstone tombstones;
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_whole boolean;
    v_entities uuid[] := '{}';
    v_pattern text;
    v_names text[];
    v_facts uuid[];
    v_notes uuid[];
    v_ids uuid[];
    v_cards uuid[];
    v_sourced uuid[];
    v_documents uuid[];
    v_objects uuid[];
    v_edges uuid[];
    v_values text;
    v_count_values bigint := 0;
    v_counts jsonb := '{}';
    v_left jsonb;
    v_count bigint;
    v_now timestamptz;
    v_gone bytea := convert_to(
        '{"code":"not_found","message":"What this answered is no longer there.","details":{}}', 'UTF8');
    v_table text;
BEGIN
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR NO KEY UPDATE;
    SELECT t.* INTO v_tombstone FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND t.tombstone_id = p_tombstone;
    IF NOT FOUND OR NOT v_tombstone.erase THEN
        RETURN QUERY SELECT 'tombstone_not_found', NULL::jsonb;
        RETURN;
    END IF;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND (e.entity_id = v_tombstone.entity_id OR e.merged_into = v_tombstone.entity_id)
    ORDER BY e.entity_id FOR UPDATE;
    SELECT t.* INTO v_tombstone FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.tombstone_id = p_tombstone FOR UPDATE;
    IF v_tombstone.erased_at IS NOT NULL THEN
        RETURN QUERY SELECT 'already_erased', NULL::jsonb;
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM tombstone_revocations r
               WHERE r.tenant_id = v_tenant AND r.tombstone_id = p_tombstone) THEN
        RETURN QUERY SELECT 'tombstone_already_revoked', NULL::jsonb;
        RETURN;
    END IF;
    v_now := clock_timestamp();
    IF v_tombstone.erase_at > v_now THEN
        RETURN QUERY SELECT 'not_yet', jsonb_build_object('erase_at', v_tombstone.erase_at);
        RETURN;
    END IF;
    v_whole := v_tombstone.scopes IS NULL;

    -- 1. What it is about: what was written since the tombstone belongs to it too.
    IF v_tombstone.named THEN
        PERFORM link_mentions(v_tenant, v_project, v_tombstone.entity_id, v_tombstone.scopes);
    END IF;
    PERFORM link_holds(v_tenant, v_project);
    SELECT d.facts, d.notes INTO v_facts, v_notes
    FROM find_covered(v_tenant, v_project, v_tombstone.entity_id, v_tombstone.scopes) d;
    SELECT d.objects, d.relationships INTO v_objects, v_edges
    FROM find_covered_objects(v_tenant, v_tombstone.entity_id, v_tombstone.scopes) d;
    IF coalesce(find_hold(v_tenant, v_project, v_tombstone.entity_id, v_tombstone.scopes, v_facts, v_notes),
                find_object_hold(v_tenant, v_objects, v_edges)) IS NOT NULL THEN
        RETURN QUERY SELECT 'legal_hold', NULL::jsonb;
        RETURN;
    END IF;
    IF v_whole THEN
        v_pattern := name_pattern(v_tenant, v_tombstone.entity_id);
        v_entities := ARRAY(
            SELECT e.entity_id FROM graph_entities e
            WHERE e.tenant_id = v_tenant
              AND (e.entity_id = v_tombstone.entity_id OR e.merged_into = v_tombstone.entity_id));
        v_names := ARRAY(
            SELECT fold_name(e.canonical_norm) FROM graph_entities e
            WHERE e.tenant_id = v_tenant AND e.entity_id = ANY (v_entities)
            UNION
            SELECT fold_name(a.alias_norm) FROM graph_entity_aliases a
            WHERE a.tenant_id = v_tenant AND a.entity_id = ANY (v_entities));
    END IF;
    v_ids := v_facts || v_notes || v_objects || v_edges || v_entities || ARRAY(
        SELECT v.version_id FROM graph_object_versions v
        WHERE v.tenant_id = v_tenant AND v.canonical_id = ANY (v_objects)
        UNION ALL
        SELECT v.version_id FROM graph_relationship_versions v
        WHERE v.tenant_id = v_tenant AND v.canonical_id = ANY (v_edges)
        UNION ALL
        SELECT e.decoy_id FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.entity_id = ANY (v_entities) AND e.decoy_id IS NOT NULL);
    -- Documents that name it, or of which a part goes. What a hold keeps of others stays as it is.
    v_documents := ARRAY(
        SELECT d.document_id FROM documents d
        WHERE d.tenant_id = v_tenant AND d.project_id = v_project
          AND (EXISTS (SELECT FROM document_entity_mentions m
                       WHERE m.tenant_id = v_tenant AND m.document_id = d.document_id
                         AND m.entity_id = v_tombstone.entity_id)
               OR EXISTS (SELECT FROM document_notes x
                          WHERE x.tenant_id = v_tenant AND x.document_id = d.document_id
                            AND x.note_id = ANY (v_notes)))
          AND (v_whole OR d.scope = ANY (v_tombstone.scopes))
          AND NOT EXISTS (SELECT FROM document_entity_mentions m
                          JOIN graph_entities e ON e.tenant_id = v_tenant AND e.entity_id = m.entity_id
                          WHERE m.tenant_id = v_tenant AND m.document_id = d.document_id
                            AND d.scope = ANY (e.held_scopes)));
    -- Values that tell something by themselves; the newest, as many as can be searched for.
    SELECT string_agg(v.quoted, '|'), count(*) INTO v_values, v_count_values
    FROM (
        SELECT regexp_replace(fold_name(f.object_value), '([][\\.^$*+?(){}|-])', '\\\1', 'g') AS quoted
        FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts) AND length(f.object_value) BETWEEN 8 AND 100
          AND v_tombstone.entity_id IN (f.subject_entity_id, f.object_entity_id)
        ORDER BY f.created_at DESC LIMIT 50
    ) v;

    -- 2. What was kept of it elsewhere: by id anywhere, by name in its own project.
    UPDATE idempotency_keys k SET status = 404, body = v_gone
    WHERE k.tenant_id = v_tenant AND NOT k.sealed AND k.body IS NOT NULL
      AND (contains_ids(encode(k.body, 'escape'), v_ids || v_documents)
           OR (v_tombstone.named AND right(k.path, length(v_project) + 1) = ' ' || v_project
               AND json_matches(convert_from(k.body, 'UTF8')::jsonb, v_pattern)));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('idempotency_keys', v_count);
    -- A note that stays although its job goes waits no longer.
    UPDATE memory_notes n SET extraction_status = 'none'
    WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.extraction_status = 'pending'
      AND EXISTS (
        SELECT FROM jobs j
        WHERE j.tenant_id = v_tenant AND j.kind = 'extract' AND j.status IN ('pending', 'leased')
          AND j.dedupe_key = n.note_id::text
          AND (contains_ids(concat_ws(' ', j.payload, j.result, j.last_error), v_ids)
               OR (v_tombstone.named AND fold_name(j.last_error) ~ v_pattern)));
    UPDATE jobs j
    SET payload = '{}', last_error = NULL, result = NULL,
        dedupe_key = CASE WHEN NOT contains_ids(j.dedupe_key, v_ids) THEN j.dedupe_key END,
        -- What a worker holds of it in its hands must not be written after this.
        status = CASE WHEN j.status = 'pending' OR (j.status = 'leased' AND j.kind IN ('extract', 'graph_link'))
                      THEN 'cancelled' ELSE j.status END,
        lease_owner = CASE WHEN j.kind NOT IN ('extract', 'graph_link') THEN j.lease_owner END,
        lease_expires_at = CASE WHEN j.kind NOT IN ('extract', 'graph_link') THEN j.lease_expires_at END,
        finished_at = CASE WHEN j.status = 'pending' OR (j.status = 'leased' AND j.kind IN ('extract', 'graph_link'))
                           THEN v_now ELSE j.finished_at END
    WHERE j.tenant_id = v_tenant AND j.job_id <> p_job
      AND (contains_ids(concat_ws(' ', j.payload, j.result, j.last_error), v_ids)
           OR (v_tombstone.named AND j.project_id = v_project
               AND (json_matches(j.payload, v_pattern) OR json_matches(j.result, v_pattern)
                    OR fold_name(j.last_error) ~ v_pattern))
           -- What is still to be done is not stopped by a mere value.
           OR (j.status NOT IN ('pending', 'leased') AND j.project_id = v_project
               AND (json_matches(j.payload, v_values) OR json_matches(j.result, v_values)
                    OR fold_name(j.last_error) ~ v_values)));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('jobs', v_count);
    IF v_tombstone.named AND v_whole THEN
        UPDATE fact_retractions r SET reason = NULL
        WHERE r.tenant_id = v_tenant AND r.project_id = v_project AND fold_name(r.reason) ~ v_pattern
          AND NOT is_held(v_tenant, r.fact_id);
        UPDATE fact_conflicts c SET resolution_note = NULL
        WHERE c.tenant_id = v_tenant AND c.project_id = v_project
          AND fold_name(c.resolution_note) ~ v_pattern AND NOT is_held(v_tenant, c.fact_a);
        WITH changed AS (
            UPDATE graph_facts f SET source = NULL, updated_at = v_now
            WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND fold_name(f.source) ~ v_pattern
              AND NOT is_held(v_tenant, f.fact_id)
            RETURNING f.fact_id
        ) SELECT array_agg(c.fact_id) INTO v_sourced FROM changed c;
        UPDATE tombstones t SET reason = ''
        WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND fold_name(t.reason) ~ v_pattern;
        UPDATE tombstone_revocations r SET reason = ''
        WHERE r.tenant_id = v_tenant AND r.project_id = v_project AND fold_name(r.reason) ~ v_pattern;
        DELETE FROM sources s
        WHERE s.tenant_id = v_tenant AND s.project_id = v_project AND fold_name(s.source) ~ v_pattern;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_counts := v_counts || jsonb_build_object('sources', v_count);
    END IF;

    -- Of documents their traces alone stay: how many chunks they had, and when.
    UPDATE documents d
    SET title = NULL, source_url = NULL, error = NULL, raw_content = NULL, author = NULL, tags = '{}',
        content_hash = NULL, content_type = NULL,
        status = CASE WHEN d.status = 'done' THEN 'done' ELSE 'failed' END, updated_at = v_now
    WHERE d.tenant_id = v_tenant AND d.document_id = ANY (v_documents);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('documents', v_count);
    DELETE FROM memory_reviews r
    WHERE r.tenant_id = v_tenant
      AND (r.note_id = ANY (v_notes) OR r.target_note_id = ANY (v_notes)
           OR (v_tombstone.named AND r.project_id = v_project AND r.suppression <> 2
               AND (v_whole OR r.scope = ANY (v_tombstone.scopes))
               AND fold_name(concat_ws(' ', r.content, r.reason, r.decision_reason)) ~ v_pattern));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('memory_reviews', v_count);
    -- What was once proposed about notes that stay.
    UPDATE memory_history h SET proposal = NULL
    WHERE h.tenant_id = v_tenant AND h.proposal IS NOT NULL AND h.note_id <> ALL (v_notes)
      AND (contains_ids(h.proposal::text, v_ids)
           OR (h.project_id = v_project AND h.suppression <> 2
               AND ((v_tombstone.named AND json_matches(h.proposal, v_pattern)) OR json_matches(h.proposal, v_values))));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('proposals', v_count);

    -- Nobody loses much with a trace: one that asks for its name goes, whatever becomes of notes that name it; of names
    -- too short for a pattern, one that asks for the entity itself.
    DELETE FROM recall_traces r
    WHERE r.tenant_id = v_tenant
      AND (contains_ids(concat_ws(' ', r.request, r.context, r.results), v_ids)
           OR (r.project_id = v_project
               AND (json_matches(r.request, v_pattern) OR json_matches(r.request, v_values)
                    OR btrim(fold_name(r.request ->> 'entity'), E' \t\n\r\u00A0') = ANY (v_names)
                    OR btrim(fold_name(r.request ->> 'entity_uri'), E' \t\n\r\u00A0') = ANY (v_names))));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('recall_traces', v_count);

    -- 3. The rows themselves, with all that hangs on them; each kind is counted before it goes.
    FOREACH v_table IN ARRAY ARRAY['graph_fact_evidence', 'fact_closings', 'fact_confidences', 'fact_retractions',
                                   'fact_derivations', 'graph_fact_mentions'] LOOP
        EXECUTE format('SELECT count(*) FROM %I x WHERE x.tenant_id = $1 AND x.fact_id = ANY ($2)', v_table)
        INTO v_count USING v_tenant, v_facts;
        v_counts := v_counts || jsonb_build_object(v_table, v_count);
    END LOOP;
    SELECT count(*) INTO v_count FROM fact_conflicts x
    WHERE x.tenant_id = v_tenant AND (x.fact_a = ANY (v_facts) OR x.fact_b = ANY (v_facts));
    v_counts := v_counts || jsonb_build_object('fact_conflicts', v_count);
    SELECT count(*) INTO v_count FROM graph_fact_supersessions x
    WHERE x.tenant_id = v_tenant AND (x.from_fact_id = ANY (v_facts) OR x.to_fact_id = ANY (v_facts));
    v_counts := v_counts || jsonb_build_object('graph_fact_supersessions', v_count);
    SELECT count(*) INTO v_count FROM entity_edges x WHERE x.tenant_id = v_tenant AND x.edge_id = ANY (v_facts);
    v_counts := v_counts || jsonb_build_object('entity_edges', v_count);
    v_cards := ARRAY(
        SELECT c.card_id FROM memory_cards c
        WHERE c.tenant_id = v_tenant AND c.entity_id = v_tombstone.entity_id
          AND (v_whole OR c.scope = ANY (v_tombstone.scopes))
        -- And those of others, which told what goes or by whom it was said.
        UNION SELECT unnest(cards_of_facts(v_tenant, v_project, v_facts || v_sourced)));
    DELETE FROM embedding_queue q
    WHERE q.tenant_id = v_tenant AND q.owner_id = ANY (v_facts || v_notes || v_cards || v_objects);
    DELETE FROM embeddings x
    WHERE x.tenant_id = v_tenant AND x.model_id IN (SELECT m.model_id FROM embedding_models m) AND x.view = 'self'
      AND x.owner_kind IN ('note', 'fact', 'card', 'object')
      AND x.owner_id = ANY (v_facts || v_notes || v_cards || v_objects);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('embeddings', v_count);
    DELETE FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.card_id = ANY (v_cards);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('memory_cards', v_count);
    -- How a conflict of others ended stays; by what it was decided goes.
    UPDATE fact_conflicts x SET winner = NULL WHERE x.tenant_id = v_tenant AND x.winner = ANY (v_facts);
    DELETE FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('graph_facts', v_count);

    -- A link between facts that stay loses only its note.
    DELETE FROM graph_fact_supersessions x
    WHERE x.tenant_id = v_tenant AND x.note_id = ANY (v_notes) AND EXISTS (
        SELECT FROM graph_fact_supersessions o
        WHERE o.tenant_id = v_tenant AND o.from_fact_id = x.from_fact_id AND o.to_fact_id = x.to_fact_id
          AND (o.note_id IS NULL OR (o.note_id = ANY (v_notes) AND o.supersession_id < x.supersession_id)));
    UPDATE graph_fact_supersessions x SET note_id = NULL
    WHERE x.tenant_id = v_tenant AND x.note_id = ANY (v_notes);
    SELECT count(*) INTO v_count FROM memory_history x WHERE x.tenant_id = v_tenant AND x.note_id = ANY (v_notes);
    v_counts := v_counts || jsonb_build_object('memory_history', v_count);
    SELECT count(*) INTO v_count FROM note_entity_mentions x
    WHERE x.tenant_id = v_tenant AND (x.note_id = ANY (v_notes) OR x.entity_id = ANY (v_entities));
    v_counts := v_counts || jsonb_build_object('note_entity_mentions', v_count);
    -- Those of other scopes stay, and forget where they come from.
    UPDATE memory_notes n SET derived_from = NULL
    WHERE n.tenant_id = v_tenant AND n.derived_from = ANY (v_notes) AND n.note_id <> ALL (v_notes);
    DELETE FROM memory_notes n WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_notes);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('memory_notes', v_count);
    -- Objects with all their versions, and what starts or ends there.
    DELETE FROM object_entity_mentions m
    WHERE m.tenant_id = v_tenant
      AND (m.canonical_id = ANY (v_objects || v_edges) OR m.entity_id = ANY (v_entities));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('object_entity_mentions', v_count);
    UPDATE graph_entities e SET object_canonical_id = NULL
    WHERE e.tenant_id = v_tenant AND e.object_canonical_id = ANY (v_objects);
    FOREACH v_table IN ARRAY ARRAY['graph_relationship_versions', 'graph_relationships', 'graph_object_versions',
                                   'graph_objects'] LOOP
        EXECUTE format('DELETE FROM %I x WHERE x.tenant_id = $1 AND x.canonical_id = ANY ($2)', v_table)
        USING v_tenant, v_objects || v_edges;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_counts := v_counts || jsonb_build_object(v_table, v_count);
    END LOOP;
    IF v_whole THEN
        DELETE FROM graph_entity_aliases a WHERE a.tenant_id = v_tenant AND a.entity_id = ANY (v_entities);
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_counts := v_counts || jsonb_build_object('graph_entity_aliases', v_count);
        DELETE FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.merged_into = v_tombstone.entity_id;
        DELETE FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.entity_id = v_tombstone.entity_id;
        PERFORM hide_or_restore_documents(v_tenant, v_documents);
        v_counts := v_counts || jsonb_build_object('graph_entities', cardinality(v_entities));
        -- All that was said of it when it was hidden, now or earlier.
        UPDATE tombstone_revocations r SET reason = '' FROM tombstones t
        WHERE t.tenant_id = v_tenant AND t.entity_id = v_tombstone.entity_id
          AND r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id;
        UPDATE tombstones t SET entity = NULL, reason = ''
        WHERE t.tenant_id = v_tenant AND t.entity_id = v_tombstone.entity_id;
        UPDATE tombstones t SET erased_at = v_now
        WHERE t.tenant_id = v_tenant AND t.entity_id = v_tombstone.entity_id AND NOT EXISTS (
            SELECT FROM tombstone_revocations r WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id);
    ELSE
        UPDATE tombstones t SET erased_at = v_now WHERE t.tenant_id = v_tenant AND t.tombstone_id = p_tombstone;
        DELETE FROM document_entity_mentions m
        WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id AND m.document_id = ANY (v_documents);
        PERFORM hide_or_restore_entity(v_tenant, v_project, v_agent, v_tombstone.entity_id);
        PERFORM hide_or_restore_documents(v_tenant, v_documents);
    END IF;
    v_counts := v_counts || jsonb_build_object('lexical_frequencies', recount_terms(v_tenant, v_project));

    -- 4. Proof: every column of every table.
    SELECT coalesce(jsonb_agg(jsonb_build_object('kind', r.kind, 'table', r.table_name, 'column', r.column_name,
                                                 'rows', r.hits)), '[]')
    INTO v_left FROM find_residue(v_tenant, v_ids, v_pattern, v_values) r;
    IF v_left @> '[{"kind": "id"}]' THEN
        RAISE EXCEPTION 'erasure left rows behind: %', v_left;
    END IF;
    PERFORM record_event('erasure_completed', v_tombstone.key_id, jsonb_build_object(
        'tombstone_id', p_tombstone, 'entity_id', v_tombstone.entity_id, 'facts', cardinality(v_facts),
        'notes', cardinality(v_notes), 'objects', cardinality(v_objects)));
    RETURN QUERY SELECT NULL::text, jsonb_build_object(
        'entity_id', v_tombstone.entity_id, 'scope', to_jsonb(v_tombstone.scopes), 'counts', v_counts,
        'found', v_left, 'names', (v_pattern IS NOT NULL)::int, 'values', v_count_values,
        'requested_at', v_tombstone.created_at, 'completed_at', v_now);
END
$$;
