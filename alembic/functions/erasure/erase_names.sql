-- Deletes an entity with its aliases and those merged into it, and blanks the names and reasons of its tombstones.
-- Returns how many rows of each table were deleted. Runs with the settings and rights of erase_entity.
CREATE OR REPLACE FUNCTION erase_names(
    p_tombstone tombstones, p_entities uuid[], p_documents uuid[], p_now timestamptz)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := p_tombstone.tenant_id;
    v_count bigint;
    v_counts jsonb := '{}';
BEGIN
    DELETE FROM graph_entity_aliases a WHERE a.tenant_id = v_tenant AND a.entity_id = ANY (p_entities);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('graph_entity_aliases', v_count);
    DELETE FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.merged_into = p_tombstone.entity_id;
    DELETE FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id = p_tombstone.entity_id;
    PERFORM hide_or_restore_documents(v_tenant, p_documents);
    v_counts := v_counts || jsonb_build_object('graph_entities', cardinality(p_entities));
    -- Tombstones of it, revoked ones included, keep neither name nor reason.
    UPDATE tombstone_revocations r SET reason = '' FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.entity_id = p_tombstone.entity_id
      AND r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id;
    UPDATE tombstones t SET entity = NULL, reason = ''
    WHERE t.tenant_id = v_tenant AND t.entity_id = p_tombstone.entity_id;
    UPDATE tombstones t SET erased_at = p_now
    WHERE t.tenant_id = v_tenant AND t.entity_id = p_tombstone.entity_id AND NOT EXISTS (
        SELECT FROM tombstone_revocations r WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id);
    RETURN v_counts;
END
$$;
