-- Deletes objects and relationships with all their versions and mentions. Returns how many rows of each table were
-- deleted. Runs with the settings and rights of erase_entity.
CREATE OR REPLACE FUNCTION erase_objects(
    p_tenant text, p_objects uuid[], p_relationships uuid[], p_entities uuid[])
RETURNS jsonb
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    v_count bigint;
    v_counts jsonb := '{}';
    v_table text;
BEGIN
    DELETE FROM object_entity_mentions m
    WHERE m.tenant_id = p_tenant
      AND (m.canonical_id = ANY (p_objects || p_relationships) OR m.entity_id = ANY (p_entities));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('object_entity_mentions', v_count);
    UPDATE graph_entities e SET object_canonical_id = NULL
    WHERE e.tenant_id = p_tenant AND e.object_canonical_id = ANY (p_objects);
    FOREACH v_table IN ARRAY ARRAY['graph_relationship_versions', 'graph_relationships', 'graph_object_versions',
                                   'graph_objects'] LOOP
        EXECUTE format('DELETE FROM %I x WHERE x.tenant_id = $1 AND x.canonical_id = ANY ($2)', v_table)
        USING p_tenant, p_objects || p_relationships;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_counts := v_counts || jsonb_build_object(v_table, v_count);
    END LOOP;
    RETURN v_counts;
END
$$;
