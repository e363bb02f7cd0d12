-- Stores the signed receipt of a user's erasure.
CREATE OR REPLACE FUNCTION store_user_receipt(p_erasure uuid, p_signed text, p_signature bytea, p_public_key bytea)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
BEGIN
    UPDATE user_erasures e SET signed = p_signed, signature = p_signature, public_key = p_public_key
    WHERE e.tenant_id = v_tenant AND e.erasure_id = p_erasure AND e.erased_at IS NOT NULL AND e.signed IS NULL;
END
$$;
