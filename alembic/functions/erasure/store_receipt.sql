-- Stores the signed receipt of an erasure, once.
CREATE OR REPLACE FUNCTION store_receipt(
    p_receipt uuid, p_tombstone uuid, p_signed text, p_signature bytea, p_public_key bytea, p_now timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
BEGIN
    INSERT INTO erasure_receipts (
        tenant_id, receipt_id, project_id, tombstone_id, signed, signature, public_key, created_at)
    SELECT v_tenant, p_receipt, v_project, t.tombstone_id, p_signed, p_signature, p_public_key, p_now
    FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND t.tombstone_id = p_tombstone
      AND t.erased_at IS NOT NULL
    ON CONFLICT DO NOTHING;
END
$$;
