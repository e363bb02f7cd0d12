-- Destroys what a tombstone with `erase` hides: the facts of the entity and those that point to it, notes that mention
-- it with their history and what was derived from them, its names, objects bound to it or naming it, and what jobs,
-- stored responses, documents, reasons and sources contain of it. The tombstone stays without content. Afterwards every
-- column of every table is searched: an id that is left is a bug and undoes everything. Returns a report as JSON;
-- `refused` when a legal hold forbids it or the grace period is not over. What a legal hold keeps of other entities is
-- not touched, whatever it contains.
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
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_tombstone tombstones;
    v_refused text;
    v_entities uuid[] := '{}';
    v_pattern text;
    v_possible text;
    v_names text[];
    v_facts uuid[];
    v_notes uuid[];
    v_objects uuid[];
    v_relationships uuid[];
    v_documents uuid[];
    v_ids uuid[];
    v_values text;
    v_count_values bigint := 0;
    v_sourced uuid[];
    v_sources_deleted bigint;
    v_counts jsonb;
    v_left jsonb;
    v_now timestamptz;
BEGIN
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR NO KEY UPDATE;
    v_refused := check_erasure(v_tenant, v_project, p_tombstone);
    SELECT t.* INTO v_tombstone FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND t.tombstone_id = p_tombstone;
    IF v_refused IS NOT NULL THEN
        RETURN QUERY SELECT v_refused, CASE v_refused
            WHEN 'not_yet' THEN jsonb_build_object('erase_at', v_tombstone.erase_at) END;
        RETURN;
    END IF;
    v_now := clock_timestamp();

    -- Find: what was written since the tombstone belongs to it too.
    IF v_tombstone.named THEN
        PERFORM link_mentions(v_tenant, v_project, v_tombstone.entity_id, v_tombstone.scopes, true);
    END IF;
    PERFORM link_holds(v_tenant, v_project);
    SELECT d.facts, d.notes INTO v_facts, v_notes
    FROM find_covered(v_tenant, v_project, v_tombstone.entity_id, v_tombstone.scopes) d;
    SELECT d.objects, d.relationships INTO v_objects, v_relationships
    FROM find_covered_objects(v_tenant, v_tombstone.entity_id, v_tombstone.scopes) d;
    IF coalesce(find_hold(v_tenant, v_project, v_tombstone.entity_id, v_tombstone.scopes, v_facts, v_notes),
                find_object_hold(v_tenant, v_objects, v_relationships)) IS NOT NULL THEN
        RETURN QUERY SELECT 'legal_hold', NULL::jsonb;
        RETURN;
    END IF;
    IF v_tombstone.scopes IS NULL THEN
        SELECT p.certain, p.possible INTO v_pattern, v_possible
        FROM name_patterns(v_tenant, v_tombstone.entity_id) p;
        SELECT n.entities, n.names INTO v_entities, v_names FROM find_names(v_tenant, v_tombstone.entity_id) n;
    END IF;
    v_ids := v_facts || v_notes || v_objects || v_relationships || v_entities
        || find_other_ids(v_tenant, v_entities, v_objects, v_relationships);
    v_documents := ARRAY(SELECT find_covered_documents(v_tombstone, v_notes));
    SELECT v.pattern, v.quantity INTO v_values, v_count_values
    FROM value_pattern(v_tenant, v_tombstone.entity_id, v_facts) v;

    -- Erase: first what other rows contain of it, then the rows themselves. Each step returns its counts.
    v_counts := erase_stored_content(v_tombstone, p_job, v_ids, v_documents, v_pattern, v_values, v_now);
    IF v_tombstone.named AND v_tombstone.scopes IS NULL THEN
        SELECT l.facts, l.sources_deleted INTO v_sourced, v_sources_deleted
        FROM erase_labels(v_tombstone, v_pattern, v_now) l;
        v_counts := v_counts || jsonb_build_object('sources', v_sources_deleted);
    END IF;
    v_counts := v_counts
        || erase_derived_content(v_tombstone, v_documents, v_notes, v_ids, v_names, v_pattern, v_values, v_now);
    v_counts := v_counts || erase_facts(v_tombstone, v_facts, v_sourced, v_notes, v_objects);
    v_counts := v_counts || erase_notes(v_tenant, v_notes, v_entities);
    v_counts := v_counts || erase_objects(v_tenant, v_objects, v_relationships, v_entities);
    IF v_tombstone.scopes IS NULL THEN
        v_counts := v_counts || erase_names(v_tombstone, v_entities, v_documents, v_now);
    ELSE
        UPDATE tombstones t SET erased_at = v_now WHERE t.tenant_id = v_tenant AND t.tombstone_id = p_tombstone;
        DELETE FROM document_entity_mentions m
        WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id AND m.document_id = ANY (v_documents);
        PERFORM hide_or_restore_entity(v_tenant, v_project, v_agent, v_tombstone.entity_id);
        PERFORM hide_or_restore_documents(v_tenant, v_documents);
    END IF;
    v_counts := v_counts || jsonb_build_object('lexical_frequencies', recount_terms(v_tenant, v_project));

    -- Prove: search every column of every table.
    SELECT coalesce(jsonb_agg(jsonb_build_object('kind', r.kind, 'table', r.table_name, 'column', r.column_name,
                                                 'rows', r.hits, 'ids', r.ids)), '[]')
    INTO v_left FROM find_residue(v_tenant, v_ids, v_pattern, v_possible, v_values) r;
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
