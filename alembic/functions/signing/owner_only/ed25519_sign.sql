-- Returns the Ed25519 signature of a message (RFC 8032, section 5.1.6). The public key must be that of the seed: two
-- signatures of one message for different public keys would give the key away.
CREATE OR REPLACE FUNCTION ed25519_sign(p_seed bytea, p_public_key bytea, p_message bytea)
RETURNS bytea
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    -- The order of the base point.
    v_order CONSTANT numeric := 7237005577332262213973186563042994240857116359379907606001950938285454250989;
    v_hash bytea := sha512(p_seed);
    v_scalar bytea := substr(v_hash, 1, 32);
    v_nonce numeric := bytes_to_number(sha512(substr(v_hash, 33) || p_message)) % v_order;
    v_point bytea := ed25519_encode(ed25519_multiply(number_to_bytes(v_nonce)));
    v_challenge numeric := bytes_to_number(sha512(v_point || p_public_key || p_message)) % v_order;
BEGIN
    v_scalar := set_byte(v_scalar, 0, get_byte(v_scalar, 0) & 248);
    v_scalar := set_byte(v_scalar, 31, get_byte(v_scalar, 31) & 127 | 64);
    RETURN v_point || number_to_bytes((v_nonce + v_challenge * bytes_to_number(v_scalar)) % v_order);
END
$$;
