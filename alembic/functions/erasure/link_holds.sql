-- Records what came to name entities under legal hold since each hold was issued, so that an erasure keeps it.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION link_holds(p_tenant text, p_project text)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_hold tombstones;
BEGIN
    FOR v_hold IN
        SELECT t.* FROM tombstones t
        WHERE t.tenant_id = p_tenant AND t.project_id = p_project AND t.legal_hold AND t.named
          AND NOT EXISTS (SELECT FROM tombstone_revocations r
                          WHERE r.tenant_id = p_tenant AND r.tombstone_id = t.tombstone_id)
    LOOP
        PERFORM link_mentions(p_tenant, p_project, v_hold.entity_id, v_hold.scopes);
    END LOOP;
END
$$;
