-- Multiplies the base point of Ed25519 by a number of 32 bytes, the least significant first.
-- It adds for every bit, also for those that are 0, so that its time does not tell how many are 1.
CREATE OR REPLACE FUNCTION ed25519_multiply(p_scalar bytea)
RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_base CONSTANT numeric[] := ARRAY[
        15112221349535400772501151409588531511454012693041857206046113283949847762202,
        46316835694926478169428394003475163141307993866256225615783033603165251855960,
        1,
        46827403850823179245072216630277197565144205554125654976674165829533817101731];
    v_product numeric[] := '{0,1,1,0}';
    v_sum numeric[];
BEGIN
    FOR i IN REVERSE 255 .. 0 LOOP
        v_product := ed25519_add(v_product, v_product);
        v_sum := ed25519_add(v_product, v_base);
        IF get_bit(p_scalar, i) = 1 THEN
            v_product := v_sum;
        END IF;
    END LOOP;
    RETURN v_product;
END
$$;
