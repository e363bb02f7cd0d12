-- Keeps how many relationships of these types there may be as it is until the transaction ends; p_change: for whoever
-- changes it, alone. By advisory locks, since a type that nobody registered has no row that could be held.
CREATE OR REPLACE FUNCTION hold_types(p_tenant text, p_types text[], p_change boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_lock bigint;
BEGIN
    FOR v_lock IN
        SELECT DISTINCT hashtextextended(p_tenant || ' ' || t.type, 7) FROM unnest(p_types) t(type) ORDER BY 1
    LOOP
        IF p_change THEN
            PERFORM pg_advisory_xact_lock(v_lock);
        ELSE
            PERFORM pg_advisory_xact_lock_shared(v_lock);
        END IF;
    END LOOP;
END
$$;
