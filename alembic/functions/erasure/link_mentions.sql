-- Records what names an entity in these scopes (NULL: all), beside what is known to be about it: notes (see
-- find_named_notes) and those derived from them; facts by their value or by an entity of the same name; documents by
-- their metadata and content; objects and relationships by any version. Objects without a project are left out, since
-- all projects share them. Returns up to 100 notes that only possibly name it (see name_patterns), which are not
-- recorded. With p_all every text is read instead of using the index of search. What is found for a tombstone is
-- recorded without its text, since it is there to be hidden and erased.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION link_mentions(
    p_tenant text, p_project text, p_entity uuid, p_scopes text[], p_all boolean DEFAULT false)
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    v_certain text;
    v_notes uuid[];
    v_possible uuid[];
    v_facts uuid[];
    v_now timestamptz := clock_timestamp();
BEGIN
    SELECT p.certain INTO v_certain FROM name_patterns(p_tenant, p_entity) p;
    SELECT n.certain, n.possible INTO v_notes, v_possible
    FROM find_named_notes(p_tenant, p_project, p_entity, p_scopes, p_all) n;
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, by_name, confidence,
                                      user_id)
    SELECT p_tenant, p_project, n.note_id, p_entity, v_now, true, mention_confidence(false, 'folded'), n.user_id
    FROM memory_notes n WHERE n.tenant_id = p_tenant AND n.note_id = ANY (v_notes)
    ON CONFLICT DO NOTHING;
    WITH RECURSIVE derived AS (
        SELECT n.note_id, n.user_id FROM note_entity_mentions m
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.derived_from = m.note_id
        WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity
          AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
        UNION
        SELECT n.note_id, n.user_id FROM derived d
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.derived_from = d.note_id
        WHERE p_scopes IS NULL OR n.scope = ANY (p_scopes)
    )
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, by_name, confidence,
                                      user_id)
    SELECT p_tenant, p_project, d.note_id, p_entity, v_now, true, mention_confidence(false, 'folded'), d.user_id
    FROM derived d
    ON CONFLICT DO NOTHING;
    INSERT INTO document_entity_mentions (tenant_id, project_id, document_id, entity_id, created_at, user_id)
    SELECT p_tenant, p_project, d.document_id, p_entity, v_now, d.user_id
    FROM documents d
    WHERE d.tenant_id = p_tenant AND d.project_id = p_project AND (p_scopes IS NULL OR d.scope = ANY (p_scopes))
      AND (fold_name(concat_ws(',,', d.title, d.source_url, d.author, d.error, array_to_string(d.tags, ',,')))
               ~ v_certain
           OR fold_name(spelled_bytes(d.raw_content)) ~ v_certain)
    ON CONFLICT DO NOTHING;
    v_facts := find_named_facts(p_tenant, p_project, p_entity, p_scopes, p_all);
    INSERT INTO graph_fact_mentions (tenant_id, project_id, fact_id, entity_id, created_at, user_id)
    SELECT p_tenant, p_project, f.fact_id, p_entity, v_now, f.user_id
    FROM graph_facts f WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (v_facts)
    ON CONFLICT DO NOTHING;
    IF p_scopes IS NULL OR 'project_shared' = ANY (p_scopes) THEN
        INSERT INTO object_entity_mentions (tenant_id, project_id, canonical_id, entity_id, created_at)
        SELECT DISTINCT p_tenant, p_project, x.canonical_id, p_entity, v_now
        FROM (
            SELECT o.canonical_id, o.properties, o.evidence,
                   concat_ws(',,', o.type, o.subtype, o.key, o.title, o.status, array_to_string(o.labels, ',,'),
                             o.properties, o.evidence) AS content
            FROM graph_object_versions o WHERE o.tenant_id = p_tenant AND o.project_id = p_project
            UNION ALL
            SELECT r.canonical_id, r.properties, r.evidence,
                   concat_ws(',,', r.type, r.role_src, r.role_dst, r.properties, r.evidence)
            FROM graph_relationship_versions r WHERE r.tenant_id = p_tenant AND r.project_id = p_project
        ) x
        -- In the JSON text, so that names of fields count too; values that JSON escapes are decoded.
        WHERE fold_name(x.content) ~ v_certain
           OR (position('\' IN x.content) > 0
               AND (json_matches(x.properties, v_certain) OR json_matches(x.evidence, v_certain)))
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN v_possible;
END
$$;
