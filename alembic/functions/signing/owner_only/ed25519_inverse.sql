-- Returns the inverse of a number in the field of Ed25519: by Fermat, its power of p - 2.
CREATE OR REPLACE FUNCTION ed25519_inverse(p_number numeric)
RETURNS numeric
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_prime CONSTANT numeric := ed25519_prime();
    v_exponent CONSTANT bytea := number_to_bytes(v_prime - 2);
    v_power numeric := 1;
BEGIN
    FOR i IN REVERSE 254 .. 0 LOOP
        v_power := v_power * v_power % v_prime;
        IF get_bit(v_exponent, i) = 1 THEN
            v_power := v_power * p_number % v_prime;
        END IF;
    END LOOP;
    RETURN v_power;
END
$$;
