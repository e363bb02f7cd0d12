-- Lock types of relationships until the transaction ends, so that their multiplicity cannot change; p_change:
-- exclusively, to change it. By advisory locks, because a type that is not registered has no row to lock.
CREATE OR REPLACE FUNCTION lock_types(p_tenant text, p_types text[], p_change boolean)
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
