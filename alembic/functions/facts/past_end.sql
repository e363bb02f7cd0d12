-- The end a fact had on record at p_known, before its first change after that. Called only for facts whose end changed
-- since; see end_known_at. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION past_end(p_fact uuid, p_tenant text, p_known timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT coalesce(c.previous_valid_to, 'infinity') FROM fact_closings c
        WHERE c.tenant_id = p_tenant AND c.fact_id = p_fact AND c.recorded_at > p_known
        ORDER BY c.recorded_at LIMIT 1);
END
$$;
