-- Returns why a tombstone cannot erase now, or NULL, and locks the entity and the tombstone.
-- Runs with the rights of erase_entity.
CREATE OR REPLACE FUNCTION check_erasure(p_tenant text, p_project text, p_tombstone uuid)
RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_tombstone tombstones;
BEGIN
    SELECT t.* INTO v_tombstone FROM tombstones t
    WHERE t.tenant_id = p_tenant AND t.project_id = p_project AND t.tombstone_id = p_tombstone;
    IF NOT FOUND OR NOT v_tombstone.erase THEN
        RETURN 'tombstone_not_found';
    END IF;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = p_tenant AND (e.entity_id = v_tombstone.entity_id OR e.merged_into = v_tombstone.entity_id)
    ORDER BY e.entity_id FOR UPDATE;
    SELECT t.* INTO v_tombstone FROM tombstones t
    WHERE t.tenant_id = p_tenant AND t.tombstone_id = p_tombstone FOR UPDATE;
    IF v_tombstone.erased_at IS NOT NULL THEN
        RETURN 'already_erased';
    END IF;
    IF EXISTS (SELECT FROM tombstone_revocations r
               WHERE r.tenant_id = p_tenant AND r.tombstone_id = p_tombstone) THEN
        RETURN 'tombstone_already_revoked';
    END IF;
    RETURN CASE WHEN v_tombstone.erase_at > clock_timestamp() THEN 'not_yet' END;
END
$$;
