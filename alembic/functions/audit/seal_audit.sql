-- Seals up to p_limit events of the tenant's audit log: each gets the next number and a hash over itself and the hash
-- before it. Only sealing jobs wait for each other, at the head of the chain. Returns how many were sealed and the new
-- head.
-- The hash is SHA-256 over the fields below, one a line; `palimpsest audit verify` computes it independently.
CREATE OR REPLACE FUNCTION seal_audit(p_limit int)
RETURNS TABLE (sealed bigint, sequence bigint, hash bytea)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_event record;
    v_sequence bigint;
    v_hash bytea;
    v_previous bytea;
    v_now timestamptz;
    v_sealed bigint := 0;
BEGIN
    IF v_tenant IS NULL THEN
        RAISE EXCEPTION 'seal_audit needs a scope with a tenant' USING ERRCODE = 'insufficient_privilege';
    END IF;
    INSERT INTO audit_chains (tenant_id, sequence, hash) VALUES (v_tenant, 0, '') ON CONFLICT DO NOTHING;
    SELECT c.sequence, c.hash INTO v_sequence, v_hash FROM audit_chains c WHERE c.tenant_id = v_tenant FOR UPDATE;
    v_now := clock_timestamp();
    FOR v_event IN
        SELECT a.event_id, a.project_id, a.event_type, a.key_id, a.agent_id, a.details, a.created_at
        FROM audit_log a WHERE a.tenant_id = v_tenant AND a.sequence IS NULL
        ORDER BY a.created_at, a.event_id LIMIT p_limit
    LOOP
        v_sequence := v_sequence + 1;
        v_sealed := v_sealed + 1;
        v_previous := v_hash;
        v_hash := sha256(convert_to(concat_ws(E'\n',
            encode(v_previous, 'hex'), v_sequence, v_tenant, v_event.event_id, coalesce(v_event.project_id, ''),
            v_event.event_type, v_event.key_id, v_event.agent_id,
            to_char(v_event.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), v_event.details), 'UTF8'));
        UPDATE audit_log a SET sequence = v_sequence, previous_hash = v_previous, hash = v_hash, sealed_at = v_now
        WHERE a.tenant_id = v_tenant AND a.event_id = v_event.event_id;
    END LOOP;
    IF v_sealed > 0 THEN
        UPDATE audit_chains c SET sequence = v_sequence, hash = v_hash WHERE c.tenant_id = v_tenant;
    END IF;
    RETURN QUERY SELECT v_sealed, v_sequence, v_hash;
END
$$;
