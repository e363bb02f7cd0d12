-- Returns the number that bytes stand for, the least significant byte first.
CREATE OR REPLACE FUNCTION bytes_to_number(p_bytes bytea)
RETURNS numeric
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_number numeric := 0;
BEGIN
    FOR i IN REVERSE length(p_bytes) - 1 .. 0 LOOP
        v_number := v_number * 256 + get_byte(p_bytes, i);
    END LOOP;
    RETURN v_number;
END
$$;
