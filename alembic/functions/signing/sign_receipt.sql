-- Signs the receipt of an erasure in the caller's scope, with the key that nothing but this function reads.
-- Refuses every other text, so that nobody gets one signed: it must name this key, the project, and a tombstone or user
-- that is erased and has no receipt yet. The settings keep the seed, which is a parameter of statements, out of printed plans.
CREATE OR REPLACE FUNCTION sign_receipt(p_signed text)
RETURNS bytea
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET client_min_messages = error
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_receipt jsonb;
    v_seed bytea;
    v_public_key bytea;
BEGIN
    IF p_signed IS JSON OBJECT WITH UNIQUE KEYS
        AND starts_with(p_signed, '{"algorithm":"Ed25519","columns_checked":') THEN
        v_receipt := p_signed::jsonb;
    END IF;
    SELECT k.seed, k.public_key INTO v_seed, v_public_key
    FROM signing_keys k
    WHERE k.purpose = 'receipts'
      AND v_receipt ->> 'public_key' = encode(k.public_key, 'base64')
      AND v_receipt ->> 'tenant_id' = v_tenant
      AND v_receipt ->> 'project_id' = v_project
      AND (EXISTS (
              SELECT FROM tombstones t
              WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND t.erased_at IS NOT NULL
                AND t.tombstone_id = (v_receipt ->> 'tombstone_id')::uuid
                AND NOT EXISTS (
                    SELECT FROM erasure_receipts e
                    WHERE e.tenant_id = v_tenant AND e.tombstone_id = t.tombstone_id))
           OR EXISTS (
              SELECT FROM user_erasures u
              WHERE u.tenant_id = v_tenant AND u.project_id = v_project AND u.erased_at IS NOT NULL
                AND u.signed IS NULL AND u.erasure_id = (v_receipt ->> 'erasure_id')::uuid));
    IF NOT FOUND THEN
        RAISE EXCEPTION 'only the receipt of an erasure that has none can be signed'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN ed25519_sign(v_seed, v_public_key, convert_to(p_signed, 'UTF8'));
END
$$;
