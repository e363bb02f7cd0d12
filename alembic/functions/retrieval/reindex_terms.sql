-- Computes the terms of up to p_limit notes, facts or objects after p_after again, in the current language of the
-- project; returns the last id, or NULL when there are no more. Hidden units are included, since they may be restored;
-- objects whose type is not searchable are not.
CREATE OR REPLACE FUNCTION reindex_terms(p_kind text, p_after uuid, p_limit int)
RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_ids uuid[];
BEGIN
    IF p_kind = 'note' THEN
        v_ids := ARRAY(
            SELECT n.note_id FROM memory_notes n
            WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.note_id > p_after
            ORDER BY n.note_id LIMIT p_limit);
        UPDATE memory_notes n
        SET terms = note_terms(v_tenant, v_project, n.author, n.occurred_at, n.tags, n.content),
            telling = count_content_terms(v_tenant, v_project, n.content)
        WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_ids);
    ELSIF p_kind = 'object' THEN
        v_ids := ARRAY(
            SELECT DISTINCT o.canonical_id FROM branches b
            JOIN graph_objects o ON o.tenant_id = v_tenant AND o.branch_id = b.branch_id AND o.canonical_id > p_after
            WHERE b.tenant_id = v_tenant AND b.project_id = v_project
            ORDER BY o.canonical_id LIMIT p_limit);
        UPDATE graph_objects o
        SET terms = object_terms(v_tenant, v_project, o.title, o.key, o.labels, object_text(o.properties))
        FROM branches b
        WHERE b.tenant_id = v_tenant AND b.project_id = v_project AND o.tenant_id = v_tenant
          AND o.branch_id = b.branch_id AND o.canonical_id = ANY (v_ids)
          AND coalesce(
              (SELECT s.fts_enabled FROM object_type_schemas s
               WHERE s.tenant_id = v_tenant AND s.type = o.type AND s.status = 'active'),
              (SELECT s.fts_enabled FROM global_object_type_schemas s
               WHERE s.type = o.type AND s.status = 'active'), true);
    ELSE
        v_ids := ARRAY(
            SELECT f.fact_id FROM graph_facts f
            WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.fact_id > p_after
            ORDER BY f.fact_id LIMIT p_limit);
        UPDATE graph_facts f
        SET terms = fact_terms(project_language(v_tenant, v_project), s.canonical, p.canonical,
                               coalesce(o.canonical, f.object_value))
        FROM graph_facts x
        JOIN graph_entities s ON s.tenant_id = v_tenant AND s.entity_id = x.subject_entity_id
        JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = x.predicate_id
        LEFT JOIN graph_entities o ON o.tenant_id = v_tenant AND o.entity_id = x.object_entity_id
        WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_ids) AND x.tenant_id = v_tenant AND x.fact_id = f.fact_id;
    END IF;
    RETURN v_ids[cardinality(v_ids)];
END
$$;
