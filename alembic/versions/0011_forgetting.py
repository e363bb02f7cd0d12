"""Forgetting by every spelling the API takes: hyphens of URIs, sigmas at the end of a word. Traces go with the entity
they asked for, and ids in JSON are proved gone; words of what is hidden are not counted; what is hidden while it is
being embedded gets no vector."""

from alembic import op
from app.db.migrations import execute_literal
from app.db.rls import APP_ROLE

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

# New functions, and those that changed, as they are now.
FUNCTIONS: tuple[str, ...] = (
    r"""
CREATE OR REPLACE FUNCTION fold_name(p_text text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT replace(replace(normalize(lower(p_text)), 'ς', 'σ'), U&'i\0307', 'i')
$$;
""",
    """
CREATE OR REPLACE FUNCTION recount_words(p_tenant text, p_project text)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_count bigint;
BEGIN
    -- Before their words: who counts them at this moment holds this row.
    INSERT INTO lexical_statistics AS s (tenant_id, project_id, kind, documents, total_length, added, counted_at)
    SELECT p_tenant, p_project, k.kind, 0, 0, 0, '-infinity' FROM unnest(ARRAY['fact', 'note', 'object']) k(kind)
    ON CONFLICT (tenant_id, project_id, kind) DO UPDATE SET counted_at = excluded.counted_at;
    DELETE FROM lexical_frequencies l WHERE l.tenant_id = p_tenant AND l.project_id = p_project;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    -- Of the whole tenant, as the job of an erasure is: agents must not learn by it that something was hidden. One that
    -- runs already may have counted before.
    INSERT INTO jobs (tenant_id, job_id, kind, payload, created_by, available_at, created_at)
    SELECT p_tenant, make_id(), 'recount', jsonb_build_object('project_id', p_project), 'schedule', v_now, v_now
    WHERE NOT EXISTS (
        SELECT FROM jobs j
        WHERE j.tenant_id = p_tenant AND j.kind = 'recount' AND j.status = 'pending'
          AND j.payload ->> 'project_id' = p_project);
    RETURN v_count;
END
$$;
""",
    r"""
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
    FROM find_doomed(v_tenant, v_project, v_tombstone.entity_id, v_tombstone.scopes) d;
    SELECT d.objects, d.relationships INTO v_objects, v_edges
    FROM doomed_objects(v_tenant, v_tombstone.entity_id, v_tombstone.scopes) d;
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
      AND (names_any(encode(k.body, 'escape'), v_ids || v_documents)
           OR (v_tombstone.named AND right(k.path, length(v_project) + 1) = ' ' || v_project
               AND says(convert_from(k.body, 'UTF8')::jsonb, v_pattern)));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('idempotency_keys', v_count);
    -- A note that stays although its job goes waits no longer.
    UPDATE memory_notes n SET extraction_status = 'none'
    WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.extraction_status = 'pending'
      AND EXISTS (
        SELECT FROM jobs j
        WHERE j.tenant_id = v_tenant AND j.kind = 'extract' AND j.status IN ('pending', 'leased')
          AND j.dedupe_key = n.note_id::text
          AND (names_any(concat_ws(' ', j.payload, j.result, j.last_error), v_ids)
               OR (v_tombstone.named AND fold_name(j.last_error) ~ v_pattern)));
    UPDATE jobs j
    SET payload = '{}', last_error = NULL, result = NULL,
        dedupe_key = CASE WHEN NOT names_any(j.dedupe_key, v_ids) THEN j.dedupe_key END,
        -- What a worker holds of it in its hands must not be written after this.
        status = CASE WHEN j.status = 'pending' OR (j.status = 'leased' AND j.kind IN ('extract', 'graph_link'))
                      THEN 'cancelled' ELSE j.status END,
        lease_owner = CASE WHEN j.kind NOT IN ('extract', 'graph_link') THEN j.lease_owner END,
        lease_expires_at = CASE WHEN j.kind NOT IN ('extract', 'graph_link') THEN j.lease_expires_at END,
        finished_at = CASE WHEN j.status = 'pending' OR (j.status = 'leased' AND j.kind IN ('extract', 'graph_link'))
                           THEN v_now ELSE j.finished_at END
    WHERE j.tenant_id = v_tenant AND j.job_id <> p_job
      AND (names_any(concat_ws(' ', j.payload, j.result, j.last_error), v_ids)
           OR (v_tombstone.named AND j.project_id = v_project
               AND (says(j.payload, v_pattern) OR says(j.result, v_pattern)
                    OR fold_name(j.last_error) ~ v_pattern))
           -- What is still to be done is not stopped by a mere value.
           OR (j.status NOT IN ('pending', 'leased') AND j.project_id = v_project
               AND (says(j.payload, v_values) OR says(j.result, v_values)
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
      AND (names_any(h.proposal::text, v_ids)
           OR (h.project_id = v_project AND h.suppression <> 2
               AND ((v_tombstone.named AND says(h.proposal, v_pattern)) OR says(h.proposal, v_values))));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('proposals', v_count);

    -- Nobody loses much with a trace: one that asks for its name goes, whatever becomes of notes that name it; of names
    -- too short for a pattern, one that asks for the entity itself.
    DELETE FROM recall_traces r
    WHERE r.tenant_id = v_tenant
      AND (names_any(concat_ws(' ', r.request, r.context, r.results), v_ids)
           OR (r.project_id = v_project
               AND (says(r.request, v_pattern) OR says(r.request, v_values)
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
        UNION SELECT unnest(cards_telling(v_tenant, v_project, v_facts || v_sourced)));
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
        PERFORM settle_documents(v_tenant, v_documents);
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
        PERFORM settle_entity(v_tenant, v_project, v_agent, v_tombstone.entity_id);
        PERFORM settle_documents(v_tenant, v_documents);
    END IF;
    v_counts := v_counts || jsonb_build_object('lexical_frequencies', recount_words(v_tenant, v_project));

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
""",
    r"""
CREATE OR REPLACE FUNCTION find_residue(p_tenant text, p_ids uuid[], p_pattern text, p_values text)
RETURNS TABLE (kind text, table_name text, column_name text, hits bigint)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_column record;
    v_looked bigint := 0;
    v_words text;
    v_ours boolean;
BEGIN
    FOR v_column IN
        SELECT c.relname AS table_name, a.attname AS column_name, a.atttypid::regtype::text AS type
        FROM pg_class c
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
          AND EXISTS (SELECT FROM pg_attribute t
                      WHERE t.attrelid = c.oid AND t.attname = 'tenant_id' AND NOT t.attisdropped)
          -- What remains to prove that there was something to erase: the id alone.
          AND NOT (c.relname = 'tombstones' AND a.attname = 'entity_id')
        ORDER BY c.relname, a.attnum
    LOOP
        kind := CASE WHEN v_column.type IN ('uuid', 'uuid[]') THEN 'id'
                     WHEN v_column.type IN ('text', 'character varying', 'text[]', 'json', 'jsonb', 'tsvector', 'bytea')
                     THEN 'name' END;
        -- Hashes and signatures hold no words, only bytes that may look like some.
        CONTINUE WHEN kind IS NULL OR v_column.column_name = 'tenant_id'
                   OR (v_column.type = 'bytea' AND v_column.column_name ~ '(hash|signature|public_key)$');
        table_name := v_column.table_name;
        column_name := v_column.column_name;
        v_looked := v_looked + 1;
        v_ours := table_name IN ('recall_traces', 'jobs')
            OR (table_name = 'memory_history' AND column_name = 'proposal');
        -- The names first; the values only tell where somebody else says the same.
        FOREACH v_words SLICE 0 IN ARRAY CASE
            WHEN kind = 'id' THEN ARRAY['id']
            WHEN v_column.type IN ('json', 'jsonb') AND v_ours THEN ARRAY['id', 'name', 'value']
            ELSE ARRAY['name', 'value'] END
        LOOP
            kind := v_words;
            EXECUTE format(
                CASE WHEN v_column.type = 'uuid' THEN
                    'SELECT count(*) FROM %1$I x WHERE x.tenant_id = $1 AND x.%2$I = ANY ($2)'
                WHEN v_column.type = 'uuid[]' THEN
                    'SELECT count(*) FROM %1$I x WHERE x.tenant_id = $1 AND x.%2$I && $2'
                WHEN v_column.type = 'bytea' THEN
                    'SELECT count(*) FROM %1$I x WHERE x.tenant_id = $1 '
                    'AND fold_name(spelled_bytes(x.%2$I)) ~ $3'
                WHEN kind = 'id' THEN
                    'SELECT count(*) FROM %1$I x WHERE x.tenant_id = $1 AND names_any(x.%2$I::text, $2)'
                -- By its values where JSON spells them otherwise than they are.
                WHEN v_column.type IN ('json', 'jsonb') THEN
                    'SELECT count(*) FROM %1$I x WHERE x.tenant_id = $1 AND (fold_name(x.%2$I::text) ~ $3 '
                    'OR (position(''\'' IN x.%2$I::text) > 0 AND says(x.%2$I::jsonb, $3))'
                    || CASE WHEN kind = 'name' AND NOT v_ours AND v_column.table_name <> 'audit_log'
                       THEN ' OR names_any(x.%2$I::text, $2))' ELSE ')' END
                ELSE
                    'SELECT count(*) FROM %1$I x WHERE x.tenant_id = $1 '
                    'AND fold_name(x.%2$I::text) ~ $3'
                END, v_column.table_name, v_column.column_name)
            INTO hits USING p_tenant, p_ids, CASE kind WHEN 'value' THEN p_values ELSE p_pattern END;
            IF hits > 0 THEN
                RETURN NEXT;
            END IF;
        END LOOP;
    END LOOP;
    kind := 'looked';
    table_name := NULL;
    column_name := NULL;
    hits := v_looked;
    RETURN NEXT;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION issue_tombstone(
    p_id uuid, p_entity json, p_scopes text[], p_reason text, p_hold boolean, p_erase boolean, p_erase_at timestamptz,
    p_named boolean, p_key text, p_job uuid)
RETURNS TABLE (refused text, entity_id uuid, canonical text, candidates uuid[], other uuid, created_at timestamptz,
               facts_hidden bigint, notes_hidden bigint, objects_hidden bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_meant record;
    v_entity graph_entities;
    v_other uuid;
    v_facts uuid[];
    v_notes uuid[];
    v_documents uuid[];
    v_objects uuid[];
    v_edges uuid[];
    v_now timestamptz;
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RAISE EXCEPTION 'issue_tombstone needs tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;
    -- One tombstone at a time in a project: each computes from all that there are.
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR NO KEY UPDATE;
    SELECT r.entity_id, r.candidates INTO v_meant FROM resolve_entities(v_tenant, v_project, p_entity) r;
    IF v_meant.entity_id IS NULL THEN
        RETURN QUERY SELECT CASE WHEN v_meant.candidates IS NULL THEN 'entity_not_found' ELSE 'entity_ambiguous' END,
                            NULL::uuid, NULL::text, v_meant.candidates, NULL::uuid, NULL::timestamptz, NULL::bigint,
                            NULL::bigint, NULL::bigint;
        RETURN;
    END IF;
    -- Those who write about it finish first; those who come later see that it is hidden.
    SELECT e.* INTO v_entity FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id = v_meant.entity_id FOR UPDATE;
    IF NOT FOUND OR v_entity.merged_into IS NOT NULL THEN
        RAISE EXCEPTION 'the entity was merged or erased meanwhile' USING ERRCODE = '40001';
    END IF;
    SELECT t.tombstone_id INTO v_other FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.entity_id = v_entity.entity_id AND t.legal_hold = p_hold
      AND t.erased_at IS NULL
      -- What is only hidden can be erased without showing it again.
      AND (t.erase OR NOT p_erase)
      AND (t.scopes IS NULL OR p_scopes IS NULL OR t.scopes && p_scopes)
      AND NOT EXISTS (SELECT FROM tombstone_revocations r
                      WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id)
    ORDER BY t.created_at LIMIT 1;
    IF FOUND THEN
        RETURN QUERY SELECT 'tombstone_already_exists', v_entity.entity_id, v_entity.canonical, NULL::uuid[], v_other,
                            NULL::timestamptz, NULL::bigint, NULL::bigint, NULL::bigint;
        RETURN;
    END IF;
    IF p_named THEN
        PERFORM link_mentions(v_tenant, v_project, v_entity.entity_id, p_scopes);
    END IF;
    IF p_erase THEN
        PERFORM link_holds(v_tenant, v_project);
        SELECT d.facts, d.notes INTO v_facts, v_notes
        FROM find_doomed(v_tenant, v_project, v_entity.entity_id, p_scopes) d;
        SELECT d.objects, d.relationships INTO v_objects, v_edges
        FROM doomed_objects(v_tenant, v_entity.entity_id, p_scopes) d;
        v_other := coalesce(find_hold(v_tenant, v_project, v_entity.entity_id, p_scopes, v_facts, v_notes),
                            find_object_hold(v_tenant, v_objects, v_edges));
        IF v_other IS NOT NULL THEN
            RETURN QUERY SELECT 'erasure_blocked', v_entity.entity_id, v_entity.canonical, NULL::uuid[], v_other,
                                NULL::timestamptz, NULL::bigint, NULL::bigint, NULL::bigint;
            RETURN;
        END IF;
    END IF;
    v_now := clock_timestamp();
    INSERT INTO tombstones (
        tenant_id, tombstone_id, project_id, entity_id, entity, scopes, reason, created_by, key_id, created_at,
        legal_hold, erase, erase_at, named)
    VALUES (v_tenant, p_id, v_project, v_entity.entity_id, v_entity.canonical, p_scopes, p_reason, v_agent, p_key,
            v_now, p_hold, p_erase, p_erase_at, p_named);
    PERFORM settle_entity(v_tenant, v_project, v_agent, v_entity.entity_id);
    SELECT d.facts, d.notes INTO v_facts, v_notes
    FROM find_doomed(v_tenant, v_project, v_entity.entity_id, p_scopes) d;
    v_documents := ARRAY(
        SELECT m.document_id FROM document_entity_mentions m
        WHERE m.tenant_id = v_tenant AND m.entity_id = v_entity.entity_id
        UNION
        SELECT x.document_id FROM document_notes x WHERE x.tenant_id = v_tenant AND x.note_id = ANY (v_notes));
    SELECT d.objects, d.relationships INTO v_objects, v_edges
    FROM doomed_objects(v_tenant, v_entity.entity_id, p_scopes) d;
    -- Answers that were kept for those who ask again must not show it either.
    DELETE FROM idempotency_keys k
    WHERE k.tenant_id = v_tenant AND NOT k.sealed AND k.path ~ '^/v1/(facts|entities|notes|conflicts|documents|graph)'
      AND names_any(encode(k.body, 'escape'),
                    v_notes || v_facts || v_documents || v_objects || v_edges || v_entity.entity_id);
    PERFORM recount_words(v_tenant, v_project);
    PERFORM record_event('tombstone_issued', p_key, jsonb_build_object(
        'tombstone_id', p_id, 'entity_id', v_entity.entity_id, 'legal_hold', p_hold, 'erase', p_erase));
    IF p_erase THEN
        -- Of the whole tenant: agents of the project must not see that there is such a job.
        INSERT INTO jobs (tenant_id, job_id, agent_id, kind, payload, dedupe_key, priority, created_by, available_at,
                          created_at)
        VALUES (v_tenant, p_job, v_agent, 'erase',
                jsonb_build_object('tombstone_id', p_id, 'project_id', v_project), p_id::text, 5, p_key, p_erase_at,
                v_now);
    END IF;
    IF p_hold THEN
        PERFORM record_event('rtbf_legal_hold_issued', p_key, jsonb_build_object(
            'tombstone_id', p_id, 'entity_id', v_entity.entity_id));
    END IF;
    RETURN QUERY SELECT NULL::text, v_entity.entity_id, v_entity.canonical, NULL::uuid[], NULL::uuid, v_now,
                        cardinality(v_facts)::bigint, cardinality(v_notes)::bigint, cardinality(v_objects)::bigint;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION kept_notes(p_tenant text, p_project text, p_notes uuid[])
RETURNS uuid[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_kept uuid[];
    v_hold record;
BEGIN
    v_kept := ARRAY(
        SELECT n.note_id FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes)
          AND (n.suppression <> 0
               OR EXISTS (
                   SELECT FROM note_entity_mentions m
                   JOIN graph_entities e ON e.tenant_id = p_tenant AND e.entity_id = m.entity_id
                   WHERE m.tenant_id = p_tenant AND m.note_id = n.note_id
                     AND hidden_level(e.erased_scopes, e.held_scopes, n.scope) <> 0)
               OR EXISTS (
                   SELECT FROM graph_fact_evidence v
                   JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_id = v.fact_id
                   WHERE v.tenant_id = p_tenant AND v.note_id = n.note_id
                     AND (f.suppression <> 0 OR is_held(p_tenant, f.fact_id)))
               OR EXISTS (
                   SELECT FROM graph_fact_supersessions s
                   JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_id IN (s.from_fact_id, s.to_fact_id)
                   WHERE s.tenant_id = p_tenant AND s.note_id = n.note_id
                     AND (s.suppression <> 0 OR f.suppression <> 0 OR is_held(p_tenant, f.fact_id)))
               OR EXISTS (
                   SELECT FROM memory_reviews r
                   WHERE r.tenant_id = p_tenant AND n.note_id IN (r.note_id, r.target_note_id)
                     AND r.suppression <> 0)
               OR EXISTS (
                   SELECT FROM document_notes d
                   JOIN documents o ON o.tenant_id = p_tenant AND o.document_id = d.document_id
                   WHERE d.tenant_id = p_tenant AND d.note_id = n.note_id
                     AND (d.suppression <> 0 OR o.suppression <> 0))));
    -- What came to name somebody since the hold was issued is not linked to it yet.
    FOR v_hold IN
        SELECT t.scopes, name_pattern(p_tenant, t.entity_id) AS pattern FROM tombstones t
        WHERE t.tenant_id = p_tenant AND t.project_id = p_project AND t.legal_hold AND t.named
          AND NOT EXISTS (SELECT FROM tombstone_revocations r
                          WHERE r.tenant_id = p_tenant AND r.tombstone_id = t.tombstone_id)
    LOOP
        v_kept := v_kept || ARRAY(
            SELECT n.note_id FROM memory_notes n
            WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes) AND n.note_id <> ALL (v_kept)
              AND (v_hold.scopes IS NULL OR n.scope = ANY (v_hold.scopes))
              AND (fold_name(concat_ws(' ', n.content, n.author, n.thread_id, array_to_string(n.tags, ' ')))
                       ~ v_hold.pattern
                   OR EXISTS (SELECT FROM memory_history h
                              WHERE h.tenant_id = p_tenant AND h.note_id = n.note_id
                                AND (fold_name(concat_ws(' ', h.old_content, h.new_content, h.reason, h.before))
                                     ~ v_hold.pattern
                                    OR says(h.before, v_hold.pattern)))));
    END LOOP;
    RETURN v_kept;
END
$$;
""",
    r"""
CREATE OR REPLACE FUNCTION link_mentions(p_tenant text, p_project text, p_entity uuid, p_scopes text[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_pattern text := name_pattern(p_tenant, p_entity);
    v_now timestamptz := clock_timestamp();
BEGIN
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, by_name)
    SELECT p_tenant, p_project, n.note_id, p_entity, v_now, true
    FROM memory_notes n
    WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
      AND (fold_name(concat_ws(' ', n.content, n.author, n.thread_id, array_to_string(n.tags, ' ')))
               ~ v_pattern
           OR EXISTS (SELECT FROM memory_history h
                      WHERE h.tenant_id = p_tenant AND h.note_id = n.note_id
                        AND (fold_name(concat_ws(' ', h.old_content, h.new_content, h.reason, h.before))
                             ~ v_pattern
                            OR says(h.before, v_pattern))))
    ON CONFLICT DO NOTHING;
    WITH RECURSIVE derived AS (
        SELECT n.note_id FROM note_entity_mentions m
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.derived_from = m.note_id
        WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity
          AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
        UNION
        SELECT n.note_id FROM derived d
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.derived_from = d.note_id
        WHERE p_scopes IS NULL OR n.scope = ANY (p_scopes)
    )
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, by_name)
    SELECT p_tenant, p_project, d.note_id, p_entity, v_now, true FROM derived d
    ON CONFLICT DO NOTHING;
    INSERT INTO document_entity_mentions (tenant_id, project_id, document_id, entity_id, created_at)
    SELECT p_tenant, p_project, d.document_id, p_entity, v_now
    FROM documents d
    WHERE d.tenant_id = p_tenant AND d.project_id = p_project AND (p_scopes IS NULL OR d.scope = ANY (p_scopes))
      AND (fold_name(concat_ws(' ', d.title, d.source_url, d.author, d.error, array_to_string(d.tags, ' ')))
               ~ v_pattern
           -- In addresses the words of a name are joined by something.
           OR fold_name(regexp_replace(d.source_url, '%20|[-_+./=]', ' ', 'g')) ~ v_pattern
           OR fold_name(spelled_bytes(d.raw_content)) ~ v_pattern)
    ON CONFLICT DO NOTHING;
    INSERT INTO graph_fact_mentions (tenant_id, project_id, fact_id, entity_id, created_at)
    SELECT p_tenant, p_project, f.fact_id, p_entity, v_now
    FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND (p_scopes IS NULL OR f.scope = ANY (p_scopes))
      AND f.object_value IS NOT NULL AND f.subject_entity_id <> p_entity
      AND fold_name(f.object_value) ~ v_pattern
    ON CONFLICT DO NOTHING;
    IF p_scopes IS NULL OR 'project_shared' = ANY (p_scopes) THEN
        INSERT INTO object_entity_mentions (tenant_id, project_id, canonical_id, entity_id, created_at)
        SELECT DISTINCT p_tenant, p_project, x.canonical_id, p_entity, v_now
        FROM (
            SELECT o.canonical_id, o.properties, o.evidence, concat_ws(' ', o.type, o.subtype, o.key, o.title, o.status,
                       array_to_string(o.labels, ' '), o.properties, o.evidence) AS said
            FROM graph_object_versions o WHERE o.tenant_id = p_tenant AND o.project_id = p_project
            UNION ALL
            SELECT r.canonical_id, r.properties, r.evidence,
                   concat_ws(' ', r.type, r.role_src, r.role_dst, r.properties, r.evidence)
            FROM graph_relationship_versions r WHERE r.tenant_id = p_tenant AND r.project_id = p_project
        ) x
        -- As it is written down, so that what fields are called counts too; what JSON spells otherwise, by its values.
        WHERE fold_name(x.said) ~ v_pattern
           -- In keys, addresses and names of types the words of a name are joined by something.
           OR fold_name(regexp_replace(x.said, '%20|[-_+./=:,;#@&|\\]+', ' ', 'g')) ~ v_pattern
           OR (position('\' IN x.said) > 0 AND (says(x.properties, v_pattern) OR says(x.evidence, v_pattern)))
        ON CONFLICT DO NOTHING;
    END IF;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION merge_entities(p_from uuid, p_into uuid, p_key text)
RETURNS TABLE (refused text, facts_moved bigint, facts_folded bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_names int;
    v_predicates uuid[];
    v_words uuid[];
    v_renamed uuid[];
    v_now timestamptz;
    v_moved bigint;
    v_folded bigint;
BEGIN
    -- Beside other merges, but never beside a tombstone.
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR SHARE;
    SELECT count(*) INTO v_names FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.entity_id IN (p_from, p_into) AND e.suppression = 0;
    IF p_from = p_into OR v_names < 2 THEN
        RETURN QUERY
        SELECT CASE WHEN p_from = p_into THEN 'same_entity' ELSE 'entity_not_found' END, 0::bigint, 0::bigint;
        RETURN;
    END IF;
    -- Those who write by these predicates finish first; then nobody can write about either entity.
    v_predicates := ARRAY(
        SELECT DISTINCT f.predicate_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project
          AND (f.subject_entity_id IN (p_from, p_into) OR f.object_entity_id IN (p_from, p_into)));
    PERFORM FROM graph_predicates p
    WHERE p.tenant_id = v_tenant AND p.predicate_id = ANY (v_predicates)
    ORDER BY p.predicate_id FOR KEY SHARE;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id IN (p_from, p_into) ORDER BY e.entity_id FOR UPDATE;
    IF EXISTS (SELECT FROM graph_entities e
               WHERE e.tenant_id = v_tenant AND e.entity_id IN (p_from, p_into) AND e.suppression > 0) THEN
        RETURN QUERY SELECT 'entity_not_found', 0::bigint, 0::bigint;
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM graph_entities e
               WHERE e.tenant_id = v_tenant AND e.entity_id IN (p_from, p_into) AND e.merged_into IS NOT NULL) THEN
        RETURN QUERY SELECT 'entity_merged', 0::bigint, 0::bigint;
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM graph_facts f
               WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.predicate_id <> ALL (v_predicates)
                 AND (f.subject_entity_id IN (p_from, p_into) OR f.object_entity_id IN (p_from, p_into))) THEN
        RAISE EXCEPTION 'a predicate came to it meanwhile' USING ERRCODE = '40001';
    END IF;
    -- The subjects of facts that point to either, so that their timelines hold still.
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id IN (
        SELECT f.subject_entity_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.object_entity_id IN (p_from, p_into))
    ORDER BY e.entity_id FOR NO KEY UPDATE;
    v_now := clock_timestamp();
    v_folded := fold_beliefs(v_tenant, v_project, v_agent, ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.retracted_at IS NULL AND f.suppression = 0
          AND (f.subject_entity_id IN (p_from, p_into) OR f.object_entity_id IN (p_from, p_into))),
        p_from, p_into, v_now);

    v_words := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = f.predicate_id AND p.status = 'pending'
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.object_value IS NOT NULL
          AND f.retracted_at IS NULL AND f.suppression = 0
          AND (f.subject_entity_id = p_from OR (f.subject_entity_id = p_into AND f.closed_at = v_now)));

    -- Of what is hidden no trace, not even in a number.
    SELECT count(*) INTO v_moved FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.suppression = 0
      AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from);
    v_renamed := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project
          AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from));
    UPDATE graph_facts f
    SET subject_entity_id = CASE f.subject_entity_id WHEN p_from THEN p_into ELSE f.subject_entity_id END,
        object_entity_id = CASE f.object_entity_id WHEN p_from THEN p_into ELSE f.object_entity_id END,
        object_hash = CASE f.object_entity_id WHEN p_from THEN sha256(uuid_send(p_into)) ELSE f.object_hash END,
        updated_at = v_now
    WHERE f.tenant_id = v_tenant AND f.project_id = v_project
      AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from);
    -- Values in words that stood on two entities, or were lengthened, may contradict others now.
    PERFORM note_conflicts(v_tenant, v_project, v_words, array_fill(v_now, ARRAY[cardinality(v_words)]));
    UPDATE entity_edges x
    SET subject_entity_id = CASE x.subject_entity_id WHEN p_from THEN p_into ELSE x.subject_entity_id END,
        object_entity_id = CASE x.object_entity_id WHEN p_from THEN p_into ELSE x.object_entity_id END
    WHERE x.tenant_id = v_tenant AND x.project_id = v_project
      AND (x.subject_entity_id = p_from OR x.object_entity_id = p_from);
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, suppression, by_name)
    SELECT m.tenant_id, m.project_id, m.note_id, p_into, m.created_at, m.suppression, m.by_name
    FROM note_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from
    ON CONFLICT DO NOTHING;
    DELETE FROM note_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;

    DELETE FROM graph_entity_aliases a
    WHERE a.tenant_id = v_tenant AND a.entity_id = p_from AND (
        EXISTS (SELECT FROM graph_entity_aliases b
                WHERE b.tenant_id = v_tenant AND b.entity_id = p_into AND b.alias_norm = a.alias_norm)
        OR EXISTS (SELECT FROM graph_entities e
                   WHERE e.tenant_id = v_tenant AND e.entity_id = p_into AND e.canonical_norm = a.alias_norm));
    UPDATE graph_entity_aliases a SET entity_id = p_into WHERE a.tenant_id = v_tenant AND a.entity_id = p_from;
    INSERT INTO graph_entity_aliases (tenant_id, alias_id, project_id, entity_id, alias, alias_norm, created_at)
    SELECT v_tenant, make_id(), v_project, p_into, e.canonical, e.canonical_norm, v_now
    FROM graph_entities e WHERE e.tenant_id = v_tenant AND e.entity_id = p_from
    ON CONFLICT (tenant_id, entity_id, alias_norm) DO NOTHING;
    UPDATE graph_entities e SET merged_into = p_into, updated_at = v_now
    WHERE e.tenant_id = v_tenant AND (e.entity_id = p_from OR e.merged_into = p_from);
    UPDATE graph_entities e
    SET kind = coalesce(e.kind, o.kind), object_canonical_id = coalesce(e.object_canonical_id, o.object_canonical_id),
        -- It was known as early as either: who looks back finds what was said of the other.
        created_at = least(e.created_at, o.created_at), updated_at = v_now
    FROM graph_entities o
    WHERE e.tenant_id = v_tenant AND e.entity_id = p_into AND o.tenant_id = v_tenant AND o.entity_id = p_from;

    -- They are found by the name that stays, and written up under it.
    UPDATE graph_facts f
    SET terms = fact_terms(project_language(v_tenant, v_project), s.canonical, p.canonical,
                           coalesce(o.canonical, f.object_value))
    FROM graph_facts r
    JOIN graph_entities s ON s.tenant_id = v_tenant AND s.entity_id = r.subject_entity_id
    JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = r.predicate_id
    LEFT JOIN graph_entities o ON o.tenant_id = v_tenant AND o.entity_id = r.object_entity_id
    WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_renamed) AND r.tenant_id = v_tenant AND r.fact_id = f.fact_id;
    PERFORM queue_units(v_tenant, v_project, 'fact', v_renamed);
    PERFORM drop_cards(v_tenant, ARRAY(
        SELECT c.card_id FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.entity_id IN (p_from, p_into)));

    UPDATE graph_fact_mentions m SET entity_id = p_into
    WHERE m.tenant_id = v_tenant AND m.entity_id = p_from AND NOT EXISTS (
        SELECT FROM graph_fact_mentions o
        WHERE o.tenant_id = v_tenant AND o.fact_id = m.fact_id AND o.entity_id = p_into);
    DELETE FROM graph_fact_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;
    INSERT INTO document_entity_mentions (tenant_id, project_id, document_id, entity_id, created_at, suppression)
    SELECT m.tenant_id, m.project_id, m.document_id, p_into, m.created_at, m.suppression
    FROM document_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from
    ON CONFLICT DO NOTHING;
    DELETE FROM document_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;
    INSERT INTO object_entity_mentions (tenant_id, project_id, canonical_id, entity_id, created_at, suppression)
    SELECT m.tenant_id, m.project_id, m.canonical_id, p_into, m.created_at, m.suppression
    FROM object_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from
    ON CONFLICT DO NOTHING;
    DELETE FROM object_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;
    -- A tombstone in some scopes goes along: what it hides of one it now hides of both.
    IF EXISTS (SELECT FROM tombstones t WHERE t.tenant_id = v_tenant AND t.entity_id IN (p_from, p_into)) THEN
        UPDATE tombstones t SET entity_id = p_into WHERE t.tenant_id = v_tenant AND t.entity_id = p_from;
        PERFORM settle_entity(v_tenant, v_project, v_agent, p_into);
    END IF;
    -- Facts that were moved may be hidden by what they point to; so are the lines this merge wrote about them.
    PERFORM settle_facts(v_tenant, v_project, v_agent, ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.suppression > 0
          AND (f.subject_entity_id = p_into OR f.object_entity_id = p_into)));
    IF EXISTS (SELECT FROM tombstones t WHERE t.tenant_id = v_tenant AND t.entity_id = p_into) THEN
        PERFORM recount_words(v_tenant, v_project);
    END IF;

    PERFORM record_event('admin_action', p_key, jsonb_build_object(
        'action', 'entity_merge', 'from', p_from, 'into', p_into, 'facts_moved', v_moved, 'facts_folded', v_folded));
    RETURN QUERY SELECT NULL::text, v_moved, v_folded;
END
$$;
""",
    r"""
CREATE OR REPLACE FUNCTION name_pattern(p_tenant text, p_entity uuid)
RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT concat_ws('|',
               '(?:^|[^0-9a-zÀ-ɏͰ-ӿ])(?:'
                   || string_agg(DISTINCT q.quoted, '|') FILTER (WHERE q.spaced AND length(n.name) > 2)
                   || ')(?:[^0-9a-zÀ-ɏͰ-ӿ]|$)',
               string_agg(DISTINCT q.quoted, '|') FILTER (WHERE NOT q.spaced AND length(n.name) > 1))
    FROM (
        SELECT fold_name(e.canonical) AS name FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND (e.entity_id = p_entity OR e.merged_into = p_entity)
        UNION
        SELECT fold_name(e.canonical_norm) FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND (e.entity_id = p_entity OR e.merged_into = p_entity)
        UNION
        SELECT fold_name(a.alias) FROM graph_entity_aliases a WHERE a.tenant_id = p_tenant AND a.entity_id = p_entity
        UNION
        SELECT fold_name(a.alias_norm) FROM graph_entity_aliases a
        WHERE a.tenant_id = p_tenant AND a.entity_id = p_entity
    ) n
    -- All that app/facts/names.py takes for white space; and how a URI begins there.
    CROSS JOIN (
        SELECT '[[:space:]\u001C-\u001F\u0085\u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]+' AS gap
    ) g
    CROSS JOIN LATERAL (SELECT coalesce(substring(n.name FROM '^[a-z][a-z0-9+.-]*:(?=[^ ])'), '') AS scheme) u
    CROSS JOIN LATERAL (
        SELECT regexp_replace(u.scheme, '([.+-])', '\\\1', 'g') || replace(
                   regexp_replace(substr(n.name, length(u.scheme) + 1), '([][\\.^$*+?(){}|-])', '\\\1', 'g'),
                   CASE WHEN u.scheme = '' THEN ' ' ELSE '\-' END,
                   CASE WHEN u.scheme = '' THEN g.gap ELSE '(?:-|%20|' || g.gap || ')' END) AS quoted,
               n.name ~ '^[ -~À-ɏͰ-ӿ]+$' AS spaced
    ) q
    HAVING count(*) FILTER (WHERE length(n.name) > CASE WHEN q.spaced THEN 2 ELSE 1 END) > 0
$$;
""",
    """
CREATE OR REPLACE FUNCTION names_any(p_text text, p_ids uuid[])
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT EXISTS (
        SELECT FROM regexp_matches(
            lower(p_text), '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}', 'g') u(id)
        WHERE u.id[1]::uuid = ANY (p_ids))
$$;
""",
    """
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
    FOR v_project IN SELECT * FROM swept_projects(v_tenant, nullif(current_setting('app.project_id', true), '')) LOOP
        IF notes < p_limit THEN
            v_notes := due_notes(v_tenant, v_project, 'notes', p_before, (p_limit - notes)::int);
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
                WITH gone AS (
                    DELETE FROM memory_notes n WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_notes)
                    RETURNING n.deleted_at
                )
                SELECT count(*), max(g.deleted_at) INTO v_count, v_last FROM gone g;
                notes := notes + v_count;
                UPDATE projects p
                SET settings = p.settings || jsonb_build_object('notes_complete_since', v_last)
                WHERE p.tenant_id = v_tenant AND p.project_id = v_project
                  AND coalesce((p.settings ->> 'notes_complete_since')::timestamptz, '-infinity') < v_last;
            END IF;
        END IF;
        CONTINUE WHEN documents >= p_limit;
        -- A document stays while one of its notes must, or its own words name somebody under a hold.
        SELECT string_agg(name_pattern(v_tenant, t.entity_id), '|') INTO v_patterns FROM tombstones t
        WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND t.legal_hold AND t.named
          AND NOT EXISTS (SELECT FROM tombstone_revocations r
                          WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id);
        WITH pick AS (
            SELECT d.document_id FROM documents d
            WHERE d.tenant_id = v_tenant AND d.project_id = v_project AND d.deleted_at < p_before
              AND d.suppression = 0
              AND (v_patterns IS NULL
                   OR fold_name(concat_ws(' ', d.title, d.author, d.source_url, array_to_string(d.tags, ' ')))
                      !~ v_patterns)
              AND NOT EXISTS (
                  SELECT FROM document_notes x
                  JOIN memory_notes n ON n.tenant_id = v_tenant AND n.note_id = x.note_id
                  WHERE x.tenant_id = v_tenant AND x.document_id = d.document_id
                    AND (x.suppression <> 0 OR n.suppression <> 0
                         OR cardinality(kept_notes(v_tenant, v_project, ARRAY[n.note_id])) > 0))
            ORDER BY d.deleted_at, d.document_id LIMIT p_limit - documents FOR UPDATE SKIP LOCKED
        )
        DELETE FROM documents d USING pick WHERE d.tenant_id = v_tenant AND d.document_id = pick.document_id;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        documents := documents + v_count;
    END LOOP;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION refresh_lexicon(p_kind text, p_frequent bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_branches uuid[] := main_branches(v_tenant, v_project);
BEGIN
    -- Who hides something meanwhile either is waited for, and does not count, or waits, and has all counted anew.
    PERFORM FROM lexical_statistics s
    WHERE s.tenant_id = v_tenant AND s.project_id = v_project AND s.kind = p_kind FOR UPDATE;
    INSERT INTO lexical_statistics AS s (tenant_id, project_id, kind, documents, total_length, added, counted_at)
    SELECT v_tenant, v_project, p_kind, count(*), coalesce(sum(d.length), 0), 0, clock_timestamp()
    FROM (
        SELECT n.terms_length AS length FROM memory_notes n
        WHERE p_kind = 'note' AND n.tenant_id = v_tenant AND n.project_id = v_project AND n.deleted_at IS NULL
          AND n.suppression = 0 AND n.scope <> 'agent_private' AND n.garden_id IS NULL
        UNION ALL
        SELECT f.terms_length FROM graph_facts f
        WHERE p_kind = 'fact' AND f.tenant_id = v_tenant AND f.project_id = v_project AND f.retracted_at IS NULL
          AND f.suppression = 0 AND f.scope <> 'agent_private' AND f.garden_id IS NULL
        UNION ALL
        SELECT o.terms_length FROM graph_objects o
        WHERE p_kind = 'object' AND o.tenant_id = v_tenant AND o.branch_id = ANY (v_branches)
          AND o.deleted_at IS NULL AND o.suppression = 0
    ) d
    ON CONFLICT (tenant_id, project_id, kind) DO UPDATE
    SET documents = excluded.documents, total_length = excluded.total_length, added = 0,
        counted_at = excluded.counted_at;
    DELETE FROM lexical_frequencies l
    WHERE l.tenant_id = v_tenant AND l.project_id = v_project AND l.kind = p_kind;
    INSERT INTO lexical_frequencies (tenant_id, project_id, kind, term, documents)
    SELECT v_tenant, v_project, p_kind, t.term, count(*)
    FROM (
        SELECT unnest(tsvector_to_array(n.terms)) AS term FROM memory_notes n
        WHERE p_kind = 'note' AND n.tenant_id = v_tenant AND n.project_id = v_project AND n.deleted_at IS NULL
          AND n.suppression = 0 AND n.scope <> 'agent_private' AND n.garden_id IS NULL
        UNION ALL
        SELECT unnest(tsvector_to_array(f.terms)) FROM graph_facts f
        WHERE p_kind = 'fact' AND f.tenant_id = v_tenant AND f.project_id = v_project AND f.retracted_at IS NULL
          AND f.suppression = 0 AND f.scope <> 'agent_private' AND f.garden_id IS NULL
        UNION ALL
        SELECT unnest(tsvector_to_array(o.terms)) FROM graph_objects o
        WHERE p_kind = 'object' AND o.tenant_id = v_tenant AND o.branch_id = ANY (v_branches)
          AND o.deleted_at IS NULL AND o.suppression = 0
    ) t
    GROUP BY t.term HAVING count(*) >= p_frequent;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION revoke_tombstone(p_tombstone uuid, p_id uuid, p_reason text, p_key text)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_tombstone tombstones;
    v_facts uuid[];
    v_notes uuid[];
    v_documents uuid[];
    v_objects uuid[];
    v_now timestamptz;
BEGIN
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR NO KEY UPDATE;
    SELECT t.* INTO v_tombstone FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND t.tombstone_id = p_tombstone;
    IF NOT FOUND THEN
        RETURN 'tombstone_not_found';
    END IF;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id = v_tombstone.entity_id FOR UPDATE;
    SELECT t.* INTO v_tombstone FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.tombstone_id = p_tombstone FOR UPDATE;
    IF v_tombstone.erased_at IS NOT NULL THEN
        RETURN 'tombstone_erased';
    END IF;
    IF EXISTS (SELECT FROM tombstone_revocations r
               WHERE r.tenant_id = v_tenant AND r.tombstone_id = p_tombstone) THEN
        RETURN 'tombstone_already_revoked';
    END IF;
    v_now := clock_timestamp();
    INSERT INTO tombstone_revocations (tenant_id, revocation_id, project_id, tombstone_id, reason, revoked_by, key_id,
                                       revoked_at)
    VALUES (v_tenant, p_id, v_project, p_tombstone, p_reason, v_agent, p_key, v_now);
    -- Which notes, facts, documents and objects name it was found out for tombstones alone.
    IF NOT EXISTS (SELECT FROM tombstones t
                   WHERE t.tenant_id = v_tenant AND t.entity_id = v_tombstone.entity_id AND t.named
                     AND t.erased_at IS NULL
                     AND NOT EXISTS (SELECT FROM tombstone_revocations r
                                     WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id)) THEN
        WITH gone AS (
            DELETE FROM note_entity_mentions m
            WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id AND m.by_name
            RETURNING m.note_id
        ) SELECT array_agg(g.note_id) INTO v_notes FROM gone g;
        WITH gone AS (
            DELETE FROM graph_fact_mentions m
            WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id
            RETURNING m.fact_id
        ) SELECT array_agg(g.fact_id) INTO v_facts FROM gone g;
        WITH gone AS (
            DELETE FROM document_entity_mentions m
            WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id
            RETURNING m.document_id
        ) SELECT array_agg(g.document_id) INTO v_documents FROM gone g;
        WITH gone AS (
            DELETE FROM object_entity_mentions m
            WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id
            RETURNING m.canonical_id
        ) SELECT array_agg(g.canonical_id) INTO v_objects FROM gone g;
    END IF;
    PERFORM settle_entity(v_tenant, v_project, v_agent, v_tombstone.entity_id);
    PERFORM settle_facts(v_tenant, v_project, v_agent, v_facts);
    PERFORM settle_notes(v_tenant, v_agent, v_notes);
    PERFORM settle_documents(v_tenant, v_documents);
    PERFORM settle_objects(v_tenant, v_objects);
    PERFORM recount_words(v_tenant, v_project);
    PERFORM record_event('tombstone_revoked', p_key, jsonb_build_object(
        'tombstone_id', p_tombstone, 'entity_id', v_tombstone.entity_id));
    UPDATE jobs j SET status = 'cancelled', finished_at = v_now
    WHERE j.tenant_id = v_tenant AND j.kind = 'erase' AND j.status = 'pending' AND j.dedupe_key = p_tombstone::text;
    IF v_tombstone.legal_hold THEN
        UPDATE jobs j
        SET status = 'pending', attempts = 0, available_at = v_now, finished_at = NULL, last_error = NULL
        FROM tombstones t
        WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND t.erase AND t.erased_at IS NULL
          AND NOT EXISTS (SELECT FROM tombstone_revocations r
                          WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id)
          AND j.tenant_id = v_tenant AND j.kind = 'erase' AND j.dedupe_key = t.tombstone_id::text
          AND j.status = 'failed';
    END IF;
    RETURN NULL;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION says(p_json jsonb, p_pattern text)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT EXISTS (
        SELECT FROM jsonb_path_query(p_json, '$.** ? (@.type() == "string")') s(word)
        WHERE fold_name(s.word #>> '{}') ~ p_pattern)
$$;
""",
    """
CREATE OR REPLACE FUNCTION store_vectors(
    p_model smallint, p_made timestamptz, p_units json, p_vectors text[], OUT skipped uuid[], OUT subjects uuid[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_main uuid := (
        SELECT b.branch_id FROM branches b
        WHERE b.tenant_id = v_tenant AND b.project_id = v_project AND b.name = 'main');
    v_leads boolean;
    v_ids uuid[];
    v_held uuid[];
    v_known uuid[];
    v_new text[];
    v_added bigint;
    v_removed bigint;
    v_notes bigint;
    v_facts bigint;
BEGIN
    v_ids := ARRAY(SELECT u.id FROM json_to_recordset(p_units) AS u(id uuid, place int) WHERE u.place IS NOT NULL);
    PERFORM FROM embedding_models m WHERE m.model_id = p_model AND m.created_at = p_made FOR KEY SHARE;
    IF NOT FOUND THEN
        skipped := v_ids;
        RETURN;
    END IF;
    -- What is told of words and cards is told once, however many models there are.
    SELECT m.model_id = p_model INTO v_leads FROM embedding_models m ORDER BY m.active DESC, m.model_id LIMIT 1;

    -- First of all the place that reconciliation holds too: one of the two works at a time, and neither waits for the
    -- other with something in hand.
    INSERT INTO embedding_counts AS c (
        tenant_id, project_id, model_id, view, vectors, notes, facts, counted_at)
    VALUES (v_tenant, v_project, p_model, 'self', 0, 0, 0, v_now)
    ON CONFLICT (tenant_id, project_id, model_id, view) DO UPDATE SET counted_at = excluded.counted_at;

    -- Whoever hides or erases a unit waits until its vector is there to be hidden or erased too. Nobody is waited for
    -- here, so that nobody can wait for us in a circle.
    v_held := ARRAY(
        SELECT c.card_id FROM memory_cards c
        WHERE c.tenant_id = v_tenant AND c.card_id = ANY (v_ids) AND c.project_id = v_project
        FOR SHARE SKIP LOCKED);
    v_held := v_held || ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_ids) AND f.project_id = v_project
        FOR SHARE SKIP LOCKED);
    v_held := v_held || ARRAY(
        SELECT n.note_id FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_ids) AND n.project_id = v_project
        FOR SHARE SKIP LOCKED);
    v_held := v_held || ARRAY(
        SELECT o.canonical_id FROM graph_objects o
        WHERE o.tenant_id = v_tenant AND o.branch_id = v_main AND o.canonical_id = ANY (v_ids)
        FOR SHARE SKIP LOCKED);
    skipped := ARRAY(
        SELECT x.id FROM (
            SELECT c.card_id AS id FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.card_id = ANY (v_ids)
            UNION ALL
            SELECT f.fact_id FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_ids)
            UNION ALL
            SELECT n.note_id FROM memory_notes n WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_ids)
            UNION ALL
            SELECT o.canonical_id FROM graph_objects o
            WHERE o.tenant_id = v_tenant AND o.branch_id = v_main AND o.canonical_id = ANY (v_ids)
        ) x WHERE x.id <> ALL (v_held));

    v_known := ARRAY(
        SELECT e.owner_id FROM json_to_recordset(p_units) AS u(kind text, id uuid)
        JOIN embeddings e ON e.tenant_id = v_tenant AND e.model_id = p_model AND e.view = 'self'
            AND e.owner_kind = u.kind AND e.owner_id = u.id);
    WITH stored AS (
        INSERT INTO embeddings AS e (
            tenant_id, project_id, owner_kind, owner_id, view, model_id, agent_id, scope, garden_id, suppression,
            text_hash, embedded_at, vector)
        SELECT v_tenant, v_project, u.kind, u.id, 'self', p_model, o.agent_id, o.scope, o.garden_id, o.suppression,
               decode(u.hash, 'hex'),
               -- Of one that was changed meanwhile it is the vector of before.
               CASE WHEN EXISTS (
                   SELECT FROM embedding_queue q
                   WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = p_model
                     AND q.owner_kind = u.kind AND q.owner_id = u.id AND q.queued_at <> u.queued_at)
               THEN u.queued_at ELSE v_now END,
               p_vectors[u.place]::vector
        FROM json_to_recordset(p_units) AS u(kind text, id uuid, hash text, place int, queued_at timestamptz)
        CROSS JOIN LATERAL (
            SELECT n.agent_id, n.scope, n.garden_id, n.suppression FROM memory_notes n
            WHERE u.kind = 'note' AND n.tenant_id = v_tenant AND n.note_id = u.id
            UNION ALL
            SELECT f.agent_id, f.scope, f.garden_id, f.suppression FROM graph_facts f
            WHERE u.kind = 'fact' AND f.tenant_id = v_tenant AND f.fact_id = u.id
            UNION ALL
            SELECT c.agent_id, c.scope, c.garden_id, c.suppression FROM memory_cards c
            WHERE u.kind = 'card' AND c.tenant_id = v_tenant AND c.card_id = u.id
            UNION ALL
            SELECT '', 'project_shared', NULL, o.suppression FROM graph_objects o
            WHERE u.kind = 'object' AND o.tenant_id = v_tenant AND o.branch_id = v_main AND o.canonical_id = u.id
        ) o
        WHERE u.place IS NOT NULL AND u.id = ANY (v_held) AND o.suppression = 0
        ORDER BY u.kind, u.id
        ON CONFLICT (tenant_id, model_id, view, owner_kind, owner_id) DO UPDATE
        SET text_hash = excluded.text_hash, vector = excluded.vector, embedded_at = excluded.embedded_at,
            agent_id = excluded.agent_id, scope = excluded.scope, garden_id = excluded.garden_id,
            suppression = excluded.suppression
        RETURNING e.owner_id <> ALL (v_known) AS is_new, e.owner_kind
    )
    SELECT count(*), count(*) FILTER (WHERE t.owner_kind = 'note'), count(*) FILTER (WHERE t.owner_kind = 'fact'),
           array_agg(t.owner_kind)
    INTO v_added, v_notes, v_facts, v_new FROM stored t WHERE t.is_new;

    -- What was changed and says the same to a model has the right vector to this day.
    UPDATE embeddings e SET embedded_at = v_now
    FROM json_to_recordset(p_units) AS u(kind text, id uuid, place int, queued_at timestamptz, gone boolean)
    JOIN embedding_queue q ON q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = p_model
        AND q.owner_kind = u.kind AND q.owner_id = u.id AND q.queued_at = u.queued_at
    JOIN memory_notes n ON n.tenant_id = v_tenant AND n.note_id = u.id
    WHERE u.kind = 'note' AND u.place IS NULL AND u.gone IS NOT TRUE AND n.updated_at > e.embedded_at
      AND e.tenant_id = v_tenant AND e.model_id = p_model AND e.view = 'self'
      AND e.owner_kind = u.kind AND e.owner_id = u.id;

    WITH gone AS (
        DELETE FROM embeddings e USING json_to_recordset(p_units) AS u(kind text, id uuid, gone boolean)
        WHERE u.gone AND e.tenant_id = v_tenant AND e.model_id = p_model AND e.view = 'self'
          AND e.owner_kind = u.kind AND e.owner_id = u.id
        RETURNING e.owner_kind
    )
    SELECT count(*), v_notes - count(*) FILTER (WHERE g.owner_kind = 'note'),
           v_facts - count(*) FILTER (WHERE g.owner_kind = 'fact')
    INTO v_removed, v_notes, v_facts FROM gone g;
    DELETE FROM embedding_queue q
    USING json_to_recordset(p_units) AS u(kind text, id uuid, queued_at timestamptz)
    WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = p_model
      AND q.owner_kind = u.kind AND q.owner_id = u.id AND q.queued_at = u.queued_at AND u.id <> ALL (skipped);
    UPDATE embedding_counts c
    SET vectors = greatest(0, c.vectors + v_added - v_removed), notes = greatest(0, c.notes + v_notes),
        facts = greatest(0, c.facts + v_facts)
    WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.model_id = p_model AND c.view = 'self'
      AND (v_added > 0 OR v_removed > 0);
    subjects := ARRAY(
        SELECT DISTINCT f.subject_entity_id
        FROM json_to_recordset(p_units) AS u(kind text, id uuid, place int, gone boolean)
        JOIN graph_facts f ON f.tenant_id = v_tenant AND f.fact_id = u.id AND f.project_id = v_project
        WHERE v_leads AND u.kind = 'fact' AND (u.gone OR u.place IS NOT NULL) AND u.id <> ALL (skipped)
          AND EXISTS (SELECT FROM memory_cards c
                      WHERE c.tenant_id = v_tenant AND c.project_id = v_project
                        AND c.entity_id = f.subject_entity_id));
    -- Last of all: who hides units at this moment holds their places in the queue, and comes here after that.
    INSERT INTO lexical_statistics AS s (tenant_id, project_id, kind, documents, total_length, added, counted_at)
    SELECT v_tenant, v_project, t.kind, 0, 0, count(*), '-infinity' FROM unnest(v_new) t(kind)
    WHERE v_leads AND t.kind IN ('note', 'fact', 'object') GROUP BY t.kind ORDER BY t.kind
    ON CONFLICT (tenant_id, project_id, kind) DO UPDATE SET added = s.added + excluded.added;
END
$$;
""",
)

# Those that changed, as they were.
OLD_FUNCTIONS: tuple[str, ...] = (
    r"""
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
    FROM find_doomed(v_tenant, v_project, v_tombstone.entity_id, v_tombstone.scopes) d;
    SELECT d.objects, d.relationships INTO v_objects, v_edges
    FROM doomed_objects(v_tenant, v_tombstone.entity_id, v_tombstone.scopes) d;
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
        SELECT regexp_replace(normalize(lower(f.object_value)), '([][\\.^$*+?(){}|-])', '\\\1', 'g') AS quoted
        FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts) AND length(f.object_value) BETWEEN 8 AND 100
          AND v_tombstone.entity_id IN (f.subject_entity_id, f.object_entity_id)
        ORDER BY f.created_at DESC LIMIT 50
    ) v;

    -- 2. What was kept of it elsewhere: by id anywhere, by name in its own project.
    UPDATE idempotency_keys k SET status = 404, body = v_gone
    WHERE k.tenant_id = v_tenant AND NOT k.sealed AND k.body IS NOT NULL
      AND (names_any(encode(k.body, 'escape'), v_ids || v_documents)
           OR (v_tombstone.named AND right(k.path, length(v_project) + 1) = ' ' || v_project
               AND says(convert_from(k.body, 'UTF8')::jsonb, v_pattern)));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('idempotency_keys', v_count);
    -- A note that stays although its job goes waits no longer.
    UPDATE memory_notes n SET extraction_status = 'none'
    WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.extraction_status = 'pending'
      AND EXISTS (
        SELECT FROM jobs j
        WHERE j.tenant_id = v_tenant AND j.kind = 'extract' AND j.status IN ('pending', 'leased')
          AND j.dedupe_key = n.note_id::text
          AND (names_any(concat_ws(' ', j.payload, j.result, j.last_error), v_ids)
               OR (v_tombstone.named AND normalize(lower(j.last_error)) ~ v_pattern)));
    UPDATE jobs j
    SET payload = '{}', last_error = NULL, result = NULL,
        dedupe_key = CASE WHEN NOT names_any(j.dedupe_key, v_ids) THEN j.dedupe_key END,
        -- What a worker holds of it in its hands must not be written after this.
        status = CASE WHEN j.status = 'pending' OR (j.status = 'leased' AND j.kind IN ('extract', 'graph_link'))
                      THEN 'cancelled' ELSE j.status END,
        lease_owner = CASE WHEN j.kind NOT IN ('extract', 'graph_link') THEN j.lease_owner END,
        lease_expires_at = CASE WHEN j.kind NOT IN ('extract', 'graph_link') THEN j.lease_expires_at END,
        finished_at = CASE WHEN j.status = 'pending' OR (j.status = 'leased' AND j.kind IN ('extract', 'graph_link'))
                           THEN v_now ELSE j.finished_at END
    WHERE j.tenant_id = v_tenant AND j.job_id <> p_job
      AND (names_any(concat_ws(' ', j.payload, j.result, j.last_error), v_ids)
           OR (v_tombstone.named AND j.project_id = v_project
               AND (says(j.payload, v_pattern) OR says(j.result, v_pattern)
                    OR normalize(lower(j.last_error)) ~ v_pattern))
           -- What is still to be done is not stopped by a mere value.
           OR (j.status NOT IN ('pending', 'leased') AND j.project_id = v_project
               AND (says(j.payload, v_values) OR says(j.result, v_values)
                    OR normalize(lower(j.last_error)) ~ v_values)));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('jobs', v_count);
    IF v_tombstone.named AND v_whole THEN
        UPDATE fact_retractions r SET reason = NULL
        WHERE r.tenant_id = v_tenant AND r.project_id = v_project AND normalize(lower(r.reason)) ~ v_pattern
          AND NOT is_held(v_tenant, r.fact_id);
        UPDATE fact_conflicts c SET resolution_note = NULL
        WHERE c.tenant_id = v_tenant AND c.project_id = v_project
          AND normalize(lower(c.resolution_note)) ~ v_pattern AND NOT is_held(v_tenant, c.fact_a);
        WITH changed AS (
            UPDATE graph_facts f SET source = NULL, updated_at = v_now
            WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND normalize(lower(f.source)) ~ v_pattern
              AND NOT is_held(v_tenant, f.fact_id)
            RETURNING f.fact_id
        ) SELECT array_agg(c.fact_id) INTO v_sourced FROM changed c;
        UPDATE tombstones t SET reason = ''
        WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND normalize(lower(t.reason)) ~ v_pattern;
        UPDATE tombstone_revocations r SET reason = ''
        WHERE r.tenant_id = v_tenant AND r.project_id = v_project AND normalize(lower(r.reason)) ~ v_pattern;
        DELETE FROM sources s
        WHERE s.tenant_id = v_tenant AND s.project_id = v_project AND normalize(lower(s.source)) ~ v_pattern;
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
               AND normalize(lower(concat_ws(' ', r.content, r.reason, r.decision_reason))) ~ v_pattern));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('memory_reviews', v_count);
    -- What was once proposed about notes that stay.
    UPDATE memory_history h SET proposal = NULL
    WHERE h.tenant_id = v_tenant AND h.proposal IS NOT NULL AND h.note_id <> ALL (v_notes)
      AND (names_any(h.proposal::text, v_ids)
           OR (h.project_id = v_project AND h.suppression <> 2
               AND ((v_tombstone.named AND says(h.proposal, v_pattern)) OR says(h.proposal, v_values))));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('proposals', v_count);

    DELETE FROM recall_traces r
    WHERE r.tenant_id = v_tenant AND r.project_id = v_project
      AND (names_any(r.results::text, v_ids) OR names_any(r.request::text, v_ids)
           OR (v_tombstone.named AND says(r.request, v_pattern)) OR says(r.request, v_values));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('recall_traces', v_count);
    -- Terms that were counted are counted anew, without it.
    DELETE FROM lexical_frequencies l WHERE l.tenant_id = v_tenant AND l.project_id = v_project;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('lexical_frequencies', v_count);
    UPDATE lexical_statistics s SET counted_at = '-infinity'
    WHERE s.tenant_id = v_tenant AND s.project_id = v_project;

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
        UNION SELECT unnest(cards_telling(v_tenant, v_project, v_facts || v_sourced)));
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
        PERFORM settle_documents(v_tenant, v_documents);
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
        PERFORM settle_entity(v_tenant, v_project, v_agent, v_tombstone.entity_id);
        PERFORM settle_documents(v_tenant, v_documents);
    END IF;

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
""",
    """
CREATE OR REPLACE FUNCTION find_residue(p_tenant text, p_ids uuid[], p_pattern text, p_values text)
RETURNS TABLE (kind text, table_name text, column_name text, hits bigint)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_column record;
    v_looked bigint := 0;
    v_words text;
BEGIN
    FOR v_column IN
        SELECT c.relname AS table_name, a.attname AS column_name, a.atttypid::regtype::text AS type
        FROM pg_class c
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
          AND EXISTS (SELECT FROM pg_attribute t
                      WHERE t.attrelid = c.oid AND t.attname = 'tenant_id' AND NOT t.attisdropped)
          -- What remains to prove that there was something to erase: the id alone.
          AND NOT (c.relname = 'tombstones' AND a.attname = 'entity_id')
        ORDER BY c.relname, a.attnum
    LOOP
        kind := CASE WHEN v_column.type IN ('uuid', 'uuid[]') THEN 'id'
                     WHEN v_column.type IN ('text', 'character varying', 'text[]', 'json', 'jsonb', 'tsvector', 'bytea')
                     THEN 'name' END;
        -- Hashes and signatures hold no words, only bytes that may look like some.
        CONTINUE WHEN kind IS NULL OR v_column.column_name = 'tenant_id'
                   OR (v_column.type = 'bytea' AND v_column.column_name ~ '(hash|signature|public_key)$');
        table_name := v_column.table_name;
        column_name := v_column.column_name;
        v_looked := v_looked + 1;
        -- The names first; the values only tell where somebody else says the same.
        FOREACH v_words SLICE 0 IN ARRAY CASE kind WHEN 'id' THEN ARRAY['id'] ELSE ARRAY['name', 'value'] END LOOP
            kind := v_words;
            EXECUTE format(
                CASE WHEN v_column.type = 'uuid' THEN
                    'SELECT count(*) FROM %1$I x WHERE x.tenant_id = $1 AND x.%2$I = ANY ($2)'
                WHEN v_column.type = 'uuid[]' THEN
                    'SELECT count(*) FROM %1$I x WHERE x.tenant_id = $1 AND x.%2$I && $2'
                WHEN v_column.type = 'bytea' THEN
                    'SELECT count(*) FROM %1$I x WHERE x.tenant_id = $1 '
                    'AND lower(encode(x.%2$I, ''escape'')) ~ $3'
                ELSE
                    'SELECT count(*) FROM %1$I x WHERE x.tenant_id = $1 '
                    'AND normalize(lower(x.%2$I::text)) ~ $3'
                END, v_column.table_name, v_column.column_name)
            INTO hits USING p_tenant, p_ids, CASE kind WHEN 'value' THEN p_values ELSE p_pattern END;
            IF hits > 0 THEN
                RETURN NEXT;
            END IF;
        END LOOP;
    END LOOP;
    kind := 'looked';
    table_name := NULL;
    column_name := NULL;
    hits := v_looked;
    RETURN NEXT;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION issue_tombstone(
    p_id uuid, p_entity json, p_scopes text[], p_reason text, p_hold boolean, p_erase boolean, p_erase_at timestamptz,
    p_named boolean, p_key text, p_job uuid)
RETURNS TABLE (refused text, entity_id uuid, canonical text, candidates uuid[], other uuid, created_at timestamptz,
               facts_hidden bigint, notes_hidden bigint, objects_hidden bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_meant record;
    v_entity graph_entities;
    v_other uuid;
    v_facts uuid[];
    v_notes uuid[];
    v_documents uuid[];
    v_objects uuid[];
    v_edges uuid[];
    v_now timestamptz;
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RAISE EXCEPTION 'issue_tombstone needs tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;
    -- One tombstone at a time in a project: each computes from all that there are.
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR NO KEY UPDATE;
    SELECT r.entity_id, r.candidates INTO v_meant FROM resolve_entities(v_tenant, v_project, p_entity) r;
    IF v_meant.entity_id IS NULL THEN
        RETURN QUERY SELECT CASE WHEN v_meant.candidates IS NULL THEN 'entity_not_found' ELSE 'entity_ambiguous' END,
                            NULL::uuid, NULL::text, v_meant.candidates, NULL::uuid, NULL::timestamptz, NULL::bigint,
                            NULL::bigint, NULL::bigint;
        RETURN;
    END IF;
    -- Those who write about it finish first; those who come later see that it is hidden.
    SELECT e.* INTO v_entity FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id = v_meant.entity_id FOR UPDATE;
    IF NOT FOUND OR v_entity.merged_into IS NOT NULL THEN
        RAISE EXCEPTION 'the entity was merged or erased meanwhile' USING ERRCODE = '40001';
    END IF;
    SELECT t.tombstone_id INTO v_other FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.entity_id = v_entity.entity_id AND t.legal_hold = p_hold
      AND t.erased_at IS NULL
      -- What is only hidden can be erased without showing it again.
      AND (t.erase OR NOT p_erase)
      AND (t.scopes IS NULL OR p_scopes IS NULL OR t.scopes && p_scopes)
      AND NOT EXISTS (SELECT FROM tombstone_revocations r
                      WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id)
    ORDER BY t.created_at LIMIT 1;
    IF FOUND THEN
        RETURN QUERY SELECT 'tombstone_already_exists', v_entity.entity_id, v_entity.canonical, NULL::uuid[], v_other,
                            NULL::timestamptz, NULL::bigint, NULL::bigint, NULL::bigint;
        RETURN;
    END IF;
    IF p_named THEN
        PERFORM link_mentions(v_tenant, v_project, v_entity.entity_id, p_scopes);
    END IF;
    IF p_erase THEN
        PERFORM link_holds(v_tenant, v_project);
        SELECT d.facts, d.notes INTO v_facts, v_notes
        FROM find_doomed(v_tenant, v_project, v_entity.entity_id, p_scopes) d;
        SELECT d.objects, d.relationships INTO v_objects, v_edges
        FROM doomed_objects(v_tenant, v_entity.entity_id, p_scopes) d;
        v_other := coalesce(find_hold(v_tenant, v_project, v_entity.entity_id, p_scopes, v_facts, v_notes),
                            find_object_hold(v_tenant, v_objects, v_edges));
        IF v_other IS NOT NULL THEN
            RETURN QUERY SELECT 'erasure_blocked', v_entity.entity_id, v_entity.canonical, NULL::uuid[], v_other,
                                NULL::timestamptz, NULL::bigint, NULL::bigint, NULL::bigint;
            RETURN;
        END IF;
    END IF;
    v_now := clock_timestamp();
    INSERT INTO tombstones (
        tenant_id, tombstone_id, project_id, entity_id, entity, scopes, reason, created_by, key_id, created_at,
        legal_hold, erase, erase_at, named)
    VALUES (v_tenant, p_id, v_project, v_entity.entity_id, v_entity.canonical, p_scopes, p_reason, v_agent, p_key,
            v_now, p_hold, p_erase, p_erase_at, p_named);
    PERFORM settle_entity(v_tenant, v_project, v_agent, v_entity.entity_id);
    SELECT d.facts, d.notes INTO v_facts, v_notes
    FROM find_doomed(v_tenant, v_project, v_entity.entity_id, p_scopes) d;
    v_documents := ARRAY(
        SELECT m.document_id FROM document_entity_mentions m
        WHERE m.tenant_id = v_tenant AND m.entity_id = v_entity.entity_id
        UNION
        SELECT x.document_id FROM document_notes x WHERE x.tenant_id = v_tenant AND x.note_id = ANY (v_notes));
    SELECT d.objects, d.relationships INTO v_objects, v_edges
    FROM doomed_objects(v_tenant, v_entity.entity_id, p_scopes) d;
    -- Answers that were kept for those who ask again must not show it either.
    DELETE FROM idempotency_keys k
    WHERE k.tenant_id = v_tenant AND NOT k.sealed AND k.path ~ '^/v1/(facts|entities|notes|conflicts|documents|graph)'
      AND names_any(encode(k.body, 'escape'),
                    v_notes || v_facts || v_documents || v_objects || v_edges || v_entity.entity_id);
    PERFORM record_event('tombstone_issued', p_key, jsonb_build_object(
        'tombstone_id', p_id, 'entity_id', v_entity.entity_id, 'legal_hold', p_hold, 'erase', p_erase));
    IF p_erase THEN
        -- Of the whole tenant: agents of the project must not see that there is such a job.
        INSERT INTO jobs (tenant_id, job_id, agent_id, kind, payload, dedupe_key, priority, created_by, available_at,
                          created_at)
        VALUES (v_tenant, p_job, v_agent, 'erase',
                jsonb_build_object('tombstone_id', p_id, 'project_id', v_project), p_id::text, 5, p_key, p_erase_at,
                v_now);
    END IF;
    IF p_hold THEN
        PERFORM record_event('rtbf_legal_hold_issued', p_key, jsonb_build_object(
            'tombstone_id', p_id, 'entity_id', v_entity.entity_id));
    END IF;
    RETURN QUERY SELECT NULL::text, v_entity.entity_id, v_entity.canonical, NULL::uuid[], NULL::uuid, v_now,
                        cardinality(v_facts)::bigint, cardinality(v_notes)::bigint, cardinality(v_objects)::bigint;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION kept_notes(p_tenant text, p_project text, p_notes uuid[])
RETURNS uuid[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_kept uuid[];
    v_hold record;
BEGIN
    v_kept := ARRAY(
        SELECT n.note_id FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes)
          AND (n.suppression <> 0
               OR EXISTS (
                   SELECT FROM note_entity_mentions m
                   JOIN graph_entities e ON e.tenant_id = p_tenant AND e.entity_id = m.entity_id
                   WHERE m.tenant_id = p_tenant AND m.note_id = n.note_id
                     AND hidden_level(e.erased_scopes, e.held_scopes, n.scope) <> 0)
               OR EXISTS (
                   SELECT FROM graph_fact_evidence v
                   JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_id = v.fact_id
                   WHERE v.tenant_id = p_tenant AND v.note_id = n.note_id
                     AND (f.suppression <> 0 OR is_held(p_tenant, f.fact_id)))
               OR EXISTS (
                   SELECT FROM graph_fact_supersessions s
                   JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_id IN (s.from_fact_id, s.to_fact_id)
                   WHERE s.tenant_id = p_tenant AND s.note_id = n.note_id
                     AND (s.suppression <> 0 OR f.suppression <> 0 OR is_held(p_tenant, f.fact_id)))
               OR EXISTS (
                   SELECT FROM memory_reviews r
                   WHERE r.tenant_id = p_tenant AND n.note_id IN (r.note_id, r.target_note_id)
                     AND r.suppression <> 0)
               OR EXISTS (
                   SELECT FROM document_notes d
                   JOIN documents o ON o.tenant_id = p_tenant AND o.document_id = d.document_id
                   WHERE d.tenant_id = p_tenant AND d.note_id = n.note_id
                     AND (d.suppression <> 0 OR o.suppression <> 0))));
    -- What came to name somebody since the hold was issued is not linked to it yet.
    FOR v_hold IN
        SELECT t.scopes, name_pattern(p_tenant, t.entity_id) AS pattern FROM tombstones t
        WHERE t.tenant_id = p_tenant AND t.project_id = p_project AND t.legal_hold AND t.named
          AND NOT EXISTS (SELECT FROM tombstone_revocations r
                          WHERE r.tenant_id = p_tenant AND r.tombstone_id = t.tombstone_id)
    LOOP
        v_kept := v_kept || ARRAY(
            SELECT n.note_id FROM memory_notes n
            WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes) AND n.note_id <> ALL (v_kept)
              AND (v_hold.scopes IS NULL OR n.scope = ANY (v_hold.scopes))
              AND (normalize(lower(concat_ws(' ', n.content, n.author, n.thread_id, array_to_string(n.tags, ' '))))
                       ~ v_hold.pattern
                   OR EXISTS (SELECT FROM memory_history h
                              WHERE h.tenant_id = p_tenant AND h.note_id = n.note_id
                                AND normalize(lower(concat_ws(' ', h.old_content, h.new_content, h.reason, h.before)))
                                    ~ v_hold.pattern)));
    END LOOP;
    RETURN v_kept;
END
$$;
""",
    r"""
CREATE OR REPLACE FUNCTION link_mentions(p_tenant text, p_project text, p_entity uuid, p_scopes text[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_pattern text := name_pattern(p_tenant, p_entity);
    v_now timestamptz := clock_timestamp();
BEGIN
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, by_name)
    SELECT p_tenant, p_project, n.note_id, p_entity, v_now, true
    FROM memory_notes n
    WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
      AND (normalize(lower(concat_ws(' ', n.content, n.author, n.thread_id, array_to_string(n.tags, ' '))))
               ~ v_pattern
           OR EXISTS (SELECT FROM memory_history h
                      WHERE h.tenant_id = p_tenant AND h.note_id = n.note_id
                        AND normalize(lower(concat_ws(' ', h.old_content, h.new_content, h.reason, h.before)))
                            ~ v_pattern))
    ON CONFLICT DO NOTHING;
    WITH RECURSIVE derived AS (
        SELECT n.note_id FROM note_entity_mentions m
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.derived_from = m.note_id
        WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity
          AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
        UNION
        SELECT n.note_id FROM derived d
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.derived_from = d.note_id
        WHERE p_scopes IS NULL OR n.scope = ANY (p_scopes)
    )
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, by_name)
    SELECT p_tenant, p_project, d.note_id, p_entity, v_now, true FROM derived d
    ON CONFLICT DO NOTHING;
    INSERT INTO document_entity_mentions (tenant_id, project_id, document_id, entity_id, created_at)
    SELECT p_tenant, p_project, d.document_id, p_entity, v_now
    FROM documents d
    WHERE d.tenant_id = p_tenant AND d.project_id = p_project AND (p_scopes IS NULL OR d.scope = ANY (p_scopes))
      AND (normalize(lower(concat_ws(' ', d.title, d.source_url, d.author, d.error, array_to_string(d.tags, ' '))))
               ~ v_pattern
           -- In addresses the words of a name are joined by something.
           OR normalize(lower(regexp_replace(d.source_url, '%20|[-_+./=]', ' ', 'g'))) ~ v_pattern
           OR normalize(lower(spelled_bytes(d.raw_content))) ~ v_pattern)
    ON CONFLICT DO NOTHING;
    INSERT INTO graph_fact_mentions (tenant_id, project_id, fact_id, entity_id, created_at)
    SELECT p_tenant, p_project, f.fact_id, p_entity, v_now
    FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND (p_scopes IS NULL OR f.scope = ANY (p_scopes))
      AND f.object_value IS NOT NULL AND f.subject_entity_id <> p_entity
      AND normalize(lower(f.object_value)) ~ v_pattern
    ON CONFLICT DO NOTHING;
    IF p_scopes IS NULL OR 'project_shared' = ANY (p_scopes) THEN
        INSERT INTO object_entity_mentions (tenant_id, project_id, canonical_id, entity_id, created_at)
        SELECT DISTINCT p_tenant, p_project, x.canonical_id, p_entity, v_now
        FROM (
            SELECT o.canonical_id, o.properties, o.evidence, concat_ws(' ', o.type, o.subtype, o.key, o.title, o.status,
                       array_to_string(o.labels, ' '), o.properties, o.evidence) AS said
            FROM graph_object_versions o WHERE o.tenant_id = p_tenant AND o.project_id = p_project
            UNION ALL
            SELECT r.canonical_id, r.properties, r.evidence,
                   concat_ws(' ', r.type, r.role_src, r.role_dst, r.properties, r.evidence)
            FROM graph_relationship_versions r WHERE r.tenant_id = p_tenant AND r.project_id = p_project
        ) x
        -- As it is written down, so that what fields are called counts too; what JSON spells otherwise, by its values.
        WHERE normalize(lower(x.said)) ~ v_pattern
           -- In keys, addresses and names of types the words of a name are joined by something.
           OR normalize(lower(regexp_replace(x.said, '%20|[-_+./=:,;#@&|\\]+', ' ', 'g'))) ~ v_pattern
           OR (position('\' IN x.said) > 0 AND (says(x.properties, v_pattern) OR says(x.evidence, v_pattern)))
        ON CONFLICT DO NOTHING;
    END IF;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION merge_entities(p_from uuid, p_into uuid, p_key text)
RETURNS TABLE (refused text, facts_moved bigint, facts_folded bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_names int;
    v_predicates uuid[];
    v_words uuid[];
    v_renamed uuid[];
    v_now timestamptz;
    v_moved bigint;
    v_folded bigint;
BEGIN
    -- Beside other merges, but never beside a tombstone.
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR SHARE;
    SELECT count(*) INTO v_names FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.entity_id IN (p_from, p_into) AND e.suppression = 0;
    IF p_from = p_into OR v_names < 2 THEN
        RETURN QUERY
        SELECT CASE WHEN p_from = p_into THEN 'same_entity' ELSE 'entity_not_found' END, 0::bigint, 0::bigint;
        RETURN;
    END IF;
    -- Those who write by these predicates finish first; then nobody can write about either entity.
    v_predicates := ARRAY(
        SELECT DISTINCT f.predicate_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project
          AND (f.subject_entity_id IN (p_from, p_into) OR f.object_entity_id IN (p_from, p_into)));
    PERFORM FROM graph_predicates p
    WHERE p.tenant_id = v_tenant AND p.predicate_id = ANY (v_predicates)
    ORDER BY p.predicate_id FOR KEY SHARE;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id IN (p_from, p_into) ORDER BY e.entity_id FOR UPDATE;
    IF EXISTS (SELECT FROM graph_entities e
               WHERE e.tenant_id = v_tenant AND e.entity_id IN (p_from, p_into) AND e.suppression > 0) THEN
        RETURN QUERY SELECT 'entity_not_found', 0::bigint, 0::bigint;
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM graph_entities e
               WHERE e.tenant_id = v_tenant AND e.entity_id IN (p_from, p_into) AND e.merged_into IS NOT NULL) THEN
        RETURN QUERY SELECT 'entity_merged', 0::bigint, 0::bigint;
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM graph_facts f
               WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.predicate_id <> ALL (v_predicates)
                 AND (f.subject_entity_id IN (p_from, p_into) OR f.object_entity_id IN (p_from, p_into))) THEN
        RAISE EXCEPTION 'a predicate came to it meanwhile' USING ERRCODE = '40001';
    END IF;
    -- The subjects of facts that point to either, so that their timelines hold still.
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id IN (
        SELECT f.subject_entity_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.object_entity_id IN (p_from, p_into))
    ORDER BY e.entity_id FOR NO KEY UPDATE;
    v_now := clock_timestamp();
    v_folded := fold_beliefs(v_tenant, v_project, v_agent, ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.retracted_at IS NULL AND f.suppression = 0
          AND (f.subject_entity_id IN (p_from, p_into) OR f.object_entity_id IN (p_from, p_into))),
        p_from, p_into, v_now);

    v_words := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = f.predicate_id AND p.status = 'pending'
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.object_value IS NOT NULL
          AND f.retracted_at IS NULL AND f.suppression = 0
          AND (f.subject_entity_id = p_from OR (f.subject_entity_id = p_into AND f.closed_at = v_now)));

    -- Of what is hidden no trace, not even in a number.
    SELECT count(*) INTO v_moved FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.suppression = 0
      AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from);
    v_renamed := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project
          AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from));
    UPDATE graph_facts f
    SET subject_entity_id = CASE f.subject_entity_id WHEN p_from THEN p_into ELSE f.subject_entity_id END,
        object_entity_id = CASE f.object_entity_id WHEN p_from THEN p_into ELSE f.object_entity_id END,
        object_hash = CASE f.object_entity_id WHEN p_from THEN sha256(uuid_send(p_into)) ELSE f.object_hash END,
        updated_at = v_now
    WHERE f.tenant_id = v_tenant AND f.project_id = v_project
      AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from);
    -- Values in words that stood on two entities, or were lengthened, may contradict others now.
    PERFORM note_conflicts(v_tenant, v_project, v_words, array_fill(v_now, ARRAY[cardinality(v_words)]));
    UPDATE entity_edges x
    SET subject_entity_id = CASE x.subject_entity_id WHEN p_from THEN p_into ELSE x.subject_entity_id END,
        object_entity_id = CASE x.object_entity_id WHEN p_from THEN p_into ELSE x.object_entity_id END
    WHERE x.tenant_id = v_tenant AND x.project_id = v_project
      AND (x.subject_entity_id = p_from OR x.object_entity_id = p_from);
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, suppression, by_name)
    SELECT m.tenant_id, m.project_id, m.note_id, p_into, m.created_at, m.suppression, m.by_name
    FROM note_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from
    ON CONFLICT DO NOTHING;
    DELETE FROM note_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;

    DELETE FROM graph_entity_aliases a
    WHERE a.tenant_id = v_tenant AND a.entity_id = p_from AND (
        EXISTS (SELECT FROM graph_entity_aliases b
                WHERE b.tenant_id = v_tenant AND b.entity_id = p_into AND b.alias_norm = a.alias_norm)
        OR EXISTS (SELECT FROM graph_entities e
                   WHERE e.tenant_id = v_tenant AND e.entity_id = p_into AND e.canonical_norm = a.alias_norm));
    UPDATE graph_entity_aliases a SET entity_id = p_into WHERE a.tenant_id = v_tenant AND a.entity_id = p_from;
    INSERT INTO graph_entity_aliases (tenant_id, alias_id, project_id, entity_id, alias, alias_norm, created_at)
    SELECT v_tenant, make_id(), v_project, p_into, e.canonical, e.canonical_norm, v_now
    FROM graph_entities e WHERE e.tenant_id = v_tenant AND e.entity_id = p_from
    ON CONFLICT (tenant_id, entity_id, alias_norm) DO NOTHING;
    UPDATE graph_entities e SET merged_into = p_into, updated_at = v_now
    WHERE e.tenant_id = v_tenant AND (e.entity_id = p_from OR e.merged_into = p_from);
    UPDATE graph_entities e
    SET kind = coalesce(e.kind, o.kind), object_canonical_id = coalesce(e.object_canonical_id, o.object_canonical_id),
        -- It was known as early as either: who looks back finds what was said of the other.
        created_at = least(e.created_at, o.created_at), updated_at = v_now
    FROM graph_entities o
    WHERE e.tenant_id = v_tenant AND e.entity_id = p_into AND o.tenant_id = v_tenant AND o.entity_id = p_from;

    -- They are found by the name that stays, and written up under it.
    UPDATE graph_facts f
    SET terms = fact_terms(project_language(v_tenant, v_project), s.canonical, p.canonical,
                           coalesce(o.canonical, f.object_value))
    FROM graph_facts r
    JOIN graph_entities s ON s.tenant_id = v_tenant AND s.entity_id = r.subject_entity_id
    JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = r.predicate_id
    LEFT JOIN graph_entities o ON o.tenant_id = v_tenant AND o.entity_id = r.object_entity_id
    WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_renamed) AND r.tenant_id = v_tenant AND r.fact_id = f.fact_id;
    PERFORM queue_units(v_tenant, v_project, 'fact', v_renamed);
    PERFORM drop_cards(v_tenant, ARRAY(
        SELECT c.card_id FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.entity_id IN (p_from, p_into)));

    UPDATE graph_fact_mentions m SET entity_id = p_into
    WHERE m.tenant_id = v_tenant AND m.entity_id = p_from AND NOT EXISTS (
        SELECT FROM graph_fact_mentions o
        WHERE o.tenant_id = v_tenant AND o.fact_id = m.fact_id AND o.entity_id = p_into);
    DELETE FROM graph_fact_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;
    INSERT INTO document_entity_mentions (tenant_id, project_id, document_id, entity_id, created_at, suppression)
    SELECT m.tenant_id, m.project_id, m.document_id, p_into, m.created_at, m.suppression
    FROM document_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from
    ON CONFLICT DO NOTHING;
    DELETE FROM document_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;
    INSERT INTO object_entity_mentions (tenant_id, project_id, canonical_id, entity_id, created_at, suppression)
    SELECT m.tenant_id, m.project_id, m.canonical_id, p_into, m.created_at, m.suppression
    FROM object_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from
    ON CONFLICT DO NOTHING;
    DELETE FROM object_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;
    -- A tombstone in some scopes goes along: what it hides of one it now hides of both.
    IF EXISTS (SELECT FROM tombstones t WHERE t.tenant_id = v_tenant AND t.entity_id IN (p_from, p_into)) THEN
        UPDATE tombstones t SET entity_id = p_into WHERE t.tenant_id = v_tenant AND t.entity_id = p_from;
        PERFORM settle_entity(v_tenant, v_project, v_agent, p_into);
    END IF;
    -- Facts that were moved may be hidden by what they point to; so are the lines this merge wrote about them.
    PERFORM settle_facts(v_tenant, v_project, v_agent, ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.suppression > 0
          AND (f.subject_entity_id = p_into OR f.object_entity_id = p_into)));

    PERFORM record_event('admin_action', p_key, jsonb_build_object(
        'action', 'entity_merge', 'from', p_from, 'into', p_into, 'facts_moved', v_moved, 'facts_folded', v_folded));
    RETURN QUERY SELECT NULL::text, v_moved, v_folded;
END
$$;
""",
    r"""
CREATE OR REPLACE FUNCTION name_pattern(p_tenant text, p_entity uuid)
RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT concat_ws('|',
               '(?:^|[^0-9a-zÀ-ɏͰ-ӿ])(?:'
                   || string_agg(DISTINCT q.quoted, '|') FILTER (WHERE q.spaced AND length(n.name) > 2)
                   || ')(?:[^0-9a-zÀ-ɏͰ-ӿ]|$)',
               string_agg(DISTINCT q.quoted, '|') FILTER (WHERE NOT q.spaced AND length(n.name) > 1))
    FROM (
        SELECT lower(e.canonical) AS name FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND (e.entity_id = p_entity OR e.merged_into = p_entity)
        UNION
        SELECT e.canonical_norm FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND (e.entity_id = p_entity OR e.merged_into = p_entity)
        UNION
        SELECT lower(a.alias) FROM graph_entity_aliases a WHERE a.tenant_id = p_tenant AND a.entity_id = p_entity
        UNION
        SELECT a.alias_norm FROM graph_entity_aliases a WHERE a.tenant_id = p_tenant AND a.entity_id = p_entity
    ) n
    CROSS JOIN LATERAL (
        SELECT replace(regexp_replace(n.name, '([][\\.^$*+?(){}|-])', '\\\1', 'g'),
                       ' ', '[[:space:]\u00A0]+') AS quoted,
               n.name ~ '^[ -~À-ɏͰ-ӿ]+$' AS spaced
    ) q
    HAVING count(*) FILTER (WHERE length(n.name) > CASE WHEN q.spaced THEN 2 ELSE 1 END) > 0
$$;
""",
    """
CREATE OR REPLACE FUNCTION names_any(p_text text, p_ids uuid[])
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT EXISTS (
        SELECT FROM regexp_matches(p_text, '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}', 'g') u(id)
        WHERE u.id[1]::uuid = ANY (p_ids))
$$;
""",
    """
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
    FOR v_project IN SELECT * FROM swept_projects(v_tenant, nullif(current_setting('app.project_id', true), '')) LOOP
        IF notes < p_limit THEN
            v_notes := due_notes(v_tenant, v_project, 'notes', p_before, (p_limit - notes)::int);
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
                WITH gone AS (
                    DELETE FROM memory_notes n WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_notes)
                    RETURNING n.deleted_at
                )
                SELECT count(*), max(g.deleted_at) INTO v_count, v_last FROM gone g;
                notes := notes + v_count;
                UPDATE projects p
                SET settings = p.settings || jsonb_build_object('notes_complete_since', v_last)
                WHERE p.tenant_id = v_tenant AND p.project_id = v_project
                  AND coalesce((p.settings ->> 'notes_complete_since')::timestamptz, '-infinity') < v_last;
            END IF;
        END IF;
        CONTINUE WHEN documents >= p_limit;
        -- A document stays while one of its notes must, or its own words name somebody under a hold.
        SELECT string_agg(name_pattern(v_tenant, t.entity_id), '|') INTO v_patterns FROM tombstones t
        WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND t.legal_hold AND t.named
          AND NOT EXISTS (SELECT FROM tombstone_revocations r
                          WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id);
        WITH pick AS (
            SELECT d.document_id FROM documents d
            WHERE d.tenant_id = v_tenant AND d.project_id = v_project AND d.deleted_at < p_before
              AND d.suppression = 0
              AND (v_patterns IS NULL
                   OR normalize(lower(concat_ws(' ', d.title, d.author, d.source_url, array_to_string(d.tags, ' '))))
                      !~ v_patterns)
              AND NOT EXISTS (
                  SELECT FROM document_notes x
                  JOIN memory_notes n ON n.tenant_id = v_tenant AND n.note_id = x.note_id
                  WHERE x.tenant_id = v_tenant AND x.document_id = d.document_id
                    AND (x.suppression <> 0 OR n.suppression <> 0
                         OR cardinality(kept_notes(v_tenant, v_project, ARRAY[n.note_id])) > 0))
            ORDER BY d.deleted_at, d.document_id LIMIT p_limit - documents FOR UPDATE SKIP LOCKED
        )
        DELETE FROM documents d USING pick WHERE d.tenant_id = v_tenant AND d.document_id = pick.document_id;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        documents := documents + v_count;
    END LOOP;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION refresh_lexicon(p_kind text, p_frequent bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_branches uuid[] := main_branches(v_tenant, v_project);
BEGIN
    INSERT INTO lexical_statistics AS s (tenant_id, project_id, kind, documents, total_length, added, counted_at)
    SELECT v_tenant, v_project, p_kind, count(*), coalesce(sum(d.length), 0), 0, clock_timestamp()
    FROM (
        SELECT n.terms_length AS length FROM memory_notes n
        WHERE p_kind = 'note' AND n.tenant_id = v_tenant AND n.project_id = v_project AND n.deleted_at IS NULL
          AND n.suppression = 0 AND n.scope <> 'agent_private' AND n.garden_id IS NULL
        UNION ALL
        SELECT f.terms_length FROM graph_facts f
        WHERE p_kind = 'fact' AND f.tenant_id = v_tenant AND f.project_id = v_project AND f.retracted_at IS NULL
          AND f.suppression = 0 AND f.scope <> 'agent_private' AND f.garden_id IS NULL
        UNION ALL
        SELECT o.terms_length FROM graph_objects o
        WHERE p_kind = 'object' AND o.tenant_id = v_tenant AND o.branch_id = ANY (v_branches)
          AND o.deleted_at IS NULL AND o.suppression = 0
    ) d
    ON CONFLICT (tenant_id, project_id, kind) DO UPDATE
    SET documents = excluded.documents, total_length = excluded.total_length, added = 0,
        counted_at = excluded.counted_at;
    DELETE FROM lexical_frequencies l
    WHERE l.tenant_id = v_tenant AND l.project_id = v_project AND l.kind = p_kind;
    INSERT INTO lexical_frequencies (tenant_id, project_id, kind, term, documents)
    SELECT v_tenant, v_project, p_kind, t.term, count(*)
    FROM (
        SELECT unnest(tsvector_to_array(n.terms)) AS term FROM memory_notes n
        WHERE p_kind = 'note' AND n.tenant_id = v_tenant AND n.project_id = v_project AND n.deleted_at IS NULL
          AND n.suppression = 0 AND n.scope <> 'agent_private' AND n.garden_id IS NULL
        UNION ALL
        SELECT unnest(tsvector_to_array(f.terms)) FROM graph_facts f
        WHERE p_kind = 'fact' AND f.tenant_id = v_tenant AND f.project_id = v_project AND f.retracted_at IS NULL
          AND f.suppression = 0 AND f.scope <> 'agent_private' AND f.garden_id IS NULL
        UNION ALL
        SELECT unnest(tsvector_to_array(o.terms)) FROM graph_objects o
        WHERE p_kind = 'object' AND o.tenant_id = v_tenant AND o.branch_id = ANY (v_branches)
          AND o.deleted_at IS NULL AND o.suppression = 0
    ) t
    GROUP BY t.term HAVING count(*) >= p_frequent;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION revoke_tombstone(p_tombstone uuid, p_id uuid, p_reason text, p_key text)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_tombstone tombstones;
    v_facts uuid[];
    v_notes uuid[];
    v_documents uuid[];
    v_objects uuid[];
    v_now timestamptz;
BEGIN
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR NO KEY UPDATE;
    SELECT t.* INTO v_tombstone FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND t.tombstone_id = p_tombstone;
    IF NOT FOUND THEN
        RETURN 'tombstone_not_found';
    END IF;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id = v_tombstone.entity_id FOR UPDATE;
    SELECT t.* INTO v_tombstone FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.tombstone_id = p_tombstone FOR UPDATE;
    IF v_tombstone.erased_at IS NOT NULL THEN
        RETURN 'tombstone_erased';
    END IF;
    IF EXISTS (SELECT FROM tombstone_revocations r
               WHERE r.tenant_id = v_tenant AND r.tombstone_id = p_tombstone) THEN
        RETURN 'tombstone_already_revoked';
    END IF;
    v_now := clock_timestamp();
    INSERT INTO tombstone_revocations (tenant_id, revocation_id, project_id, tombstone_id, reason, revoked_by, key_id,
                                       revoked_at)
    VALUES (v_tenant, p_id, v_project, p_tombstone, p_reason, v_agent, p_key, v_now);
    -- Which notes, facts, documents and objects name it was found out for tombstones alone.
    IF NOT EXISTS (SELECT FROM tombstones t
                   WHERE t.tenant_id = v_tenant AND t.entity_id = v_tombstone.entity_id AND t.named
                     AND t.erased_at IS NULL
                     AND NOT EXISTS (SELECT FROM tombstone_revocations r
                                     WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id)) THEN
        WITH gone AS (
            DELETE FROM note_entity_mentions m
            WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id AND m.by_name
            RETURNING m.note_id
        ) SELECT array_agg(g.note_id) INTO v_notes FROM gone g;
        WITH gone AS (
            DELETE FROM graph_fact_mentions m
            WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id
            RETURNING m.fact_id
        ) SELECT array_agg(g.fact_id) INTO v_facts FROM gone g;
        WITH gone AS (
            DELETE FROM document_entity_mentions m
            WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id
            RETURNING m.document_id
        ) SELECT array_agg(g.document_id) INTO v_documents FROM gone g;
        WITH gone AS (
            DELETE FROM object_entity_mentions m
            WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id
            RETURNING m.canonical_id
        ) SELECT array_agg(g.canonical_id) INTO v_objects FROM gone g;
    END IF;
    PERFORM settle_entity(v_tenant, v_project, v_agent, v_tombstone.entity_id);
    PERFORM settle_facts(v_tenant, v_project, v_agent, v_facts);
    PERFORM settle_notes(v_tenant, v_agent, v_notes);
    PERFORM settle_documents(v_tenant, v_documents);
    PERFORM settle_objects(v_tenant, v_objects);
    PERFORM record_event('tombstone_revoked', p_key, jsonb_build_object(
        'tombstone_id', p_tombstone, 'entity_id', v_tombstone.entity_id));
    UPDATE jobs j SET status = 'cancelled', finished_at = v_now
    WHERE j.tenant_id = v_tenant AND j.kind = 'erase' AND j.status = 'pending' AND j.dedupe_key = p_tombstone::text;
    IF v_tombstone.legal_hold THEN
        UPDATE jobs j
        SET status = 'pending', attempts = 0, available_at = v_now, finished_at = NULL, last_error = NULL
        FROM tombstones t
        WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND t.erase AND t.erased_at IS NULL
          AND NOT EXISTS (SELECT FROM tombstone_revocations r
                          WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id)
          AND j.tenant_id = v_tenant AND j.kind = 'erase' AND j.dedupe_key = t.tombstone_id::text
          AND j.status = 'failed';
    END IF;
    RETURN NULL;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION says(p_json jsonb, p_pattern text)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT EXISTS (
        SELECT FROM jsonb_path_query(p_json, '$.** ? (@.type() == "string")') s(word)
        WHERE normalize(lower(s.word #>> '{}')) ~ p_pattern)
$$;
""",
    """
CREATE OR REPLACE FUNCTION store_vectors(
    p_model smallint, p_made timestamptz, p_units json, p_vectors text[], OUT skipped uuid[], OUT subjects uuid[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_main uuid := (
        SELECT b.branch_id FROM branches b
        WHERE b.tenant_id = v_tenant AND b.project_id = v_project AND b.name = 'main');
    v_leads boolean;
    v_ids uuid[];
    v_held uuid[];
    v_known uuid[];
    v_added bigint;
    v_removed bigint;
    v_notes bigint;
    v_facts bigint;
BEGIN
    v_ids := ARRAY(SELECT u.id FROM json_to_recordset(p_units) AS u(id uuid, place int) WHERE u.place IS NOT NULL);
    PERFORM FROM embedding_models m WHERE m.model_id = p_model AND m.created_at = p_made FOR KEY SHARE;
    IF NOT FOUND THEN
        skipped := v_ids;
        RETURN;
    END IF;
    -- What is told of words and cards is told once, however many models there are.
    SELECT m.model_id = p_model INTO v_leads FROM embedding_models m ORDER BY m.active DESC, m.model_id LIMIT 1;

    -- First of all the place that reconciliation holds too: one of the two works at a time, and neither waits for the
    -- other with something in hand.
    INSERT INTO embedding_counts AS c (
        tenant_id, project_id, model_id, view, vectors, notes, facts, counted_at)
    VALUES (v_tenant, v_project, p_model, 'self', 0, 0, 0, v_now)
    ON CONFLICT (tenant_id, project_id, model_id, view) DO UPDATE SET counted_at = excluded.counted_at;

    -- Whoever hides or erases a unit waits until its vector is there to be hidden or erased too. Nobody is waited for
    -- here, so that nobody can wait for us in a circle.
    v_held := ARRAY(
        SELECT c.card_id FROM memory_cards c
        WHERE c.tenant_id = v_tenant AND c.card_id = ANY (v_ids) AND c.project_id = v_project
        FOR SHARE SKIP LOCKED);
    v_held := v_held || ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_ids) AND f.project_id = v_project
        FOR SHARE SKIP LOCKED);
    v_held := v_held || ARRAY(
        SELECT n.note_id FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_ids) AND n.project_id = v_project
        FOR SHARE SKIP LOCKED);
    v_held := v_held || ARRAY(
        SELECT o.canonical_id FROM graph_objects o
        WHERE o.tenant_id = v_tenant AND o.branch_id = v_main AND o.canonical_id = ANY (v_ids)
        FOR SHARE SKIP LOCKED);
    skipped := ARRAY(
        SELECT x.id FROM (
            SELECT c.card_id AS id FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.card_id = ANY (v_ids)
            UNION ALL
            SELECT f.fact_id FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_ids)
            UNION ALL
            SELECT n.note_id FROM memory_notes n WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_ids)
            UNION ALL
            SELECT o.canonical_id FROM graph_objects o
            WHERE o.tenant_id = v_tenant AND o.branch_id = v_main AND o.canonical_id = ANY (v_ids)
        ) x WHERE x.id <> ALL (v_held));

    v_known := ARRAY(
        SELECT e.owner_id FROM json_to_recordset(p_units) AS u(kind text, id uuid)
        JOIN embeddings e ON e.tenant_id = v_tenant AND e.model_id = p_model AND e.view = 'self'
            AND e.owner_kind = u.kind AND e.owner_id = u.id);
    WITH stored AS (
        INSERT INTO embeddings AS e (
            tenant_id, project_id, owner_kind, owner_id, view, model_id, agent_id, scope, garden_id, suppression,
            text_hash, embedded_at, vector)
        SELECT v_tenant, v_project, u.kind, u.id, 'self', p_model, o.agent_id, o.scope, o.garden_id, o.suppression,
               decode(u.hash, 'hex'),
               -- Of one that was changed meanwhile it is the vector of before.
               CASE WHEN EXISTS (
                   SELECT FROM embedding_queue q
                   WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = p_model
                     AND q.owner_kind = u.kind AND q.owner_id = u.id AND q.queued_at <> u.queued_at)
               THEN u.queued_at ELSE v_now END,
               p_vectors[u.place]::vector
        FROM json_to_recordset(p_units) AS u(kind text, id uuid, hash text, place int, queued_at timestamptz)
        CROSS JOIN LATERAL (
            SELECT n.agent_id, n.scope, n.garden_id, n.suppression FROM memory_notes n
            WHERE u.kind = 'note' AND n.tenant_id = v_tenant AND n.note_id = u.id
            UNION ALL
            SELECT f.agent_id, f.scope, f.garden_id, f.suppression FROM graph_facts f
            WHERE u.kind = 'fact' AND f.tenant_id = v_tenant AND f.fact_id = u.id
            UNION ALL
            SELECT c.agent_id, c.scope, c.garden_id, c.suppression FROM memory_cards c
            WHERE u.kind = 'card' AND c.tenant_id = v_tenant AND c.card_id = u.id
            UNION ALL
            SELECT '', 'project_shared', NULL, o.suppression FROM graph_objects o
            WHERE u.kind = 'object' AND o.tenant_id = v_tenant AND o.branch_id = v_main AND o.canonical_id = u.id
        ) o
        WHERE u.place IS NOT NULL AND u.id = ANY (v_held)
        ORDER BY u.kind, u.id
        ON CONFLICT (tenant_id, model_id, view, owner_kind, owner_id) DO UPDATE
        SET text_hash = excluded.text_hash, vector = excluded.vector, embedded_at = excluded.embedded_at,
            agent_id = excluded.agent_id, scope = excluded.scope, garden_id = excluded.garden_id,
            suppression = excluded.suppression
        RETURNING e.owner_id <> ALL (v_known) AS is_new, e.owner_kind
    ), told AS (
        INSERT INTO lexical_statistics AS s (tenant_id, project_id, kind, documents, total_length, added, counted_at)
        SELECT v_tenant, v_project, t.owner_kind, 0, 0, count(*), '-infinity' FROM stored t
        WHERE v_leads AND t.is_new AND t.owner_kind IN ('note', 'fact', 'object') GROUP BY t.owner_kind
        ON CONFLICT (tenant_id, project_id, kind) DO UPDATE SET added = s.added + excluded.added
        RETURNING s.kind
    )
    SELECT count(*), count(*) FILTER (WHERE t.owner_kind = 'note'), count(*) FILTER (WHERE t.owner_kind = 'fact')
    INTO v_added, v_notes, v_facts FROM stored t WHERE t.is_new;

    -- What was changed and says the same to a model has the right vector to this day.
    UPDATE embeddings e SET embedded_at = v_now
    FROM json_to_recordset(p_units) AS u(kind text, id uuid, place int, queued_at timestamptz, gone boolean)
    JOIN embedding_queue q ON q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = p_model
        AND q.owner_kind = u.kind AND q.owner_id = u.id AND q.queued_at = u.queued_at
    JOIN memory_notes n ON n.tenant_id = v_tenant AND n.note_id = u.id
    WHERE u.kind = 'note' AND u.place IS NULL AND u.gone IS NOT TRUE AND n.updated_at > e.embedded_at
      AND e.tenant_id = v_tenant AND e.model_id = p_model AND e.view = 'self'
      AND e.owner_kind = u.kind AND e.owner_id = u.id;

    WITH gone AS (
        DELETE FROM embeddings e USING json_to_recordset(p_units) AS u(kind text, id uuid, gone boolean)
        WHERE u.gone AND e.tenant_id = v_tenant AND e.model_id = p_model AND e.view = 'self'
          AND e.owner_kind = u.kind AND e.owner_id = u.id
        RETURNING e.owner_kind
    )
    SELECT count(*), v_notes - count(*) FILTER (WHERE g.owner_kind = 'note'),
           v_facts - count(*) FILTER (WHERE g.owner_kind = 'fact')
    INTO v_removed, v_notes, v_facts FROM gone g;
    DELETE FROM embedding_queue q
    USING json_to_recordset(p_units) AS u(kind text, id uuid, queued_at timestamptz)
    WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = p_model
      AND q.owner_kind = u.kind AND q.owner_id = u.id AND q.queued_at = u.queued_at AND u.id <> ALL (skipped);
    UPDATE embedding_counts c
    SET vectors = greatest(0, c.vectors + v_added - v_removed), notes = greatest(0, c.notes + v_notes),
        facts = greatest(0, c.facts + v_facts)
    WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.model_id = p_model AND c.view = 'self'
      AND (v_added > 0 OR v_removed > 0);
    subjects := ARRAY(
        SELECT DISTINCT f.subject_entity_id
        FROM json_to_recordset(p_units) AS u(kind text, id uuid, place int, gone boolean)
        JOIN graph_facts f ON f.tenant_id = v_tenant AND f.fact_id = u.id AND f.project_id = v_project
        WHERE v_leads AND u.kind = 'fact' AND (u.gone OR u.place IS NOT NULL) AND u.id <> ALL (skipped)
          AND EXISTS (SELECT FROM memory_cards c
                      WHERE c.tenant_id = v_tenant AND c.project_id = v_project
                        AND c.entity_id = f.subject_entity_id));
END
$$;
""",
)

SIGNATURES: tuple[str, ...] = (
    "fold_name(text)",
    "recount_words(text, text)",
)

# Vectors of what was hidden while it was being embedded; what came back since has one again after the next night.
HIDDEN_VECTORS = "DELETE FROM embeddings WHERE suppression <> 0"

# Words of what is hidden were counted until now. Made here as the function makes them: one job for each such project.
RECOUNT = """
SELECT recount_words(p.tenant_id, p.project_id) FROM projects p
WHERE EXISTS (SELECT FROM tombstones t WHERE t.tenant_id = p.tenant_id AND t.project_id = p.project_id)
"""


def upgrade() -> None:
    for function in FUNCTIONS:
        execute_literal(function)
    for signature in SIGNATURES:
        op.execute(f"REVOKE EXECUTE ON FUNCTION {signature} FROM PUBLIC")
        op.execute(f"GRANT EXECUTE ON FUNCTION {signature} TO {APP_ROLE}")
    op.execute(HIDDEN_VECTORS)
    op.execute(RECOUNT)


def downgrade() -> None:
    for function in OLD_FUNCTIONS:
        execute_literal(function)
    for signature in SIGNATURES:
        op.execute(f"DROP FUNCTION {signature}")
    # A worker of before does not know this kind.
    op.execute("DELETE FROM jobs WHERE kind = 'recount' AND status = 'pending'")
