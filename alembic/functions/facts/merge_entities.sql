-- Makes one entity of two: facts, edges, mentions and aliases of p_from become those of p_into, whose name it keeps as
-- an alias; p_from itself stays as a signpost. Beliefs that are now the same fold into one fact with the evidence of
-- both; timelines that are now one are put in order. One transaction, one line in the audit log.
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
    v_folded := merge_duplicates(v_tenant, v_project, v_agent, ARRAY(
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
    PERFORM record_conflicts(v_tenant, v_project, v_words, array_fill(v_now, ARRAY[cardinality(v_words)]));
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
        PERFORM hide_or_restore_entity(v_tenant, v_project, v_agent, p_into);
    END IF;
    -- Facts that were moved may be hidden by what they point to; so are the lines this merge wrote about them.
    PERFORM hide_or_restore_facts(v_tenant, v_project, v_agent, ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.suppression > 0
          AND (f.subject_entity_id = p_into OR f.object_entity_id = p_into)));
    IF EXISTS (SELECT FROM tombstones t WHERE t.tenant_id = v_tenant AND t.entity_id = p_into) THEN
        PERFORM recount_terms(v_tenant, v_project);
    END IF;

    PERFORM record_event('admin_action', p_key, jsonb_build_object(
        'action', 'entity_merge', 'from', p_from, 'into', p_into, 'facts_moved', v_moved, 'facts_folded', v_folded));
    RETURN QUERY SELECT NULL::text, v_moved, v_folded;
END
$$;
