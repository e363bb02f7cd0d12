-- Returns a number below 2^256 as 32 bytes, the least significant byte first.
CREATE OR REPLACE FUNCTION number_to_bytes(p_number numeric)
RETURNS bytea
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_bytes bytea := decode(repeat('00', 32), 'hex');
    v_rest numeric := p_number;
BEGIN
    FOR i IN 0 .. 31 LOOP
        v_bytes := set_byte(v_bytes, i, (v_rest % 256)::int);
        v_rest := div(v_rest, 256);
    END LOOP;
    RETURN v_bytes;
END
$$;
