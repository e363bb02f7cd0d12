-- Adds two points of Ed25519 in extended coordinates {X, Y, Z, T}; they may be the same one (RFC 8032, section 5.1.4).
-- Coordinates are remainders that may be negative.
CREATE OR REPLACE FUNCTION ed25519_add(p_left numeric[], p_right numeric[])
RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_prime CONSTANT numeric := ed25519_prime();
    -- Twice the constant d of the curve.
    v_2d CONSTANT numeric := 16295367250680780974490674513165176452449235426866156013048779062215315747161;
    a numeric := (p_left[2] - p_left[1]) * (p_right[2] - p_right[1]) % v_prime;
    b numeric := (p_left[2] + p_left[1]) * (p_right[2] + p_right[1]) % v_prime;
    c numeric := p_left[4] * p_right[4] % v_prime * v_2d % v_prime;
    d numeric := 2 * p_left[3] * p_right[3] % v_prime;
    e numeric := b - a;
    f numeric := d - c;
    g numeric := d + c;
    h numeric := b + a;
BEGIN
    RETURN ARRAY[e * f % v_prime, g * h % v_prime, f * g % v_prime, e * h % v_prime];
END
$$;
