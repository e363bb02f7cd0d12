-- Returns the 32 bytes of a point of Ed25519: y, with the lowest bit of x as the highest one.
CREATE OR REPLACE FUNCTION ed25519_encode(p_point numeric[])
RETURNS bytea
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_prime CONSTANT numeric := ed25519_prime();
    v_inverse numeric := ed25519_inverse(p_point[3]);
    -- A remainder of numeric has the sign of what was divided.
    v_x numeric := (p_point[1] * v_inverse % v_prime + v_prime) % v_prime;
    v_y numeric := (p_point[2] * v_inverse % v_prime + v_prime) % v_prime;
BEGIN
    RETURN set_bit(number_to_bytes(v_y), 255, (v_x % 2)::int);
END
$$;
