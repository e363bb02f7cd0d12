-- Returns an active tombstone that already does what another one for this entity would do, or NULL.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_active_tombstone(
    p_tenant text, p_entity uuid, p_scopes text[], p_hold boolean, p_erase boolean)
RETURNS uuid
LANGUAGE sql STABLE
AS $$
    SELECT t.tombstone_id FROM tombstones t
    WHERE t.tenant_id = p_tenant AND t.entity_id = p_entity AND t.legal_hold = p_hold AND t.erased_at IS NULL
      -- An entity that is only hidden can be erased without restoring it first.
      AND (t.erase OR NOT p_erase)
      AND (t.scopes IS NULL OR p_scopes IS NULL OR t.scopes && p_scopes)
      AND NOT EXISTS (SELECT FROM tombstone_revocations r
                      WHERE r.tenant_id = p_tenant AND r.tombstone_id = t.tombstone_id)
    ORDER BY t.created_at LIMIT 1
$$;
