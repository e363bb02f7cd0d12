-- Returns the live facts that cite one of these notes and no live note besides them: those that deleting the notes
-- retracts. Hidden facts are included. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION unsupported_facts(p_tenant text, p_notes uuid[])
RETURNS uuid[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
BEGIN
    RETURN ARRAY(
        SELECT DISTINCT f.fact_id FROM graph_fact_evidence v
        JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_id = v.fact_id
        WHERE v.tenant_id = p_tenant AND v.note_id = ANY (p_notes) AND f.retracted_at IS NULL
          AND NOT EXISTS (
              SELECT FROM graph_fact_evidence o
              JOIN memory_notes n ON n.tenant_id = p_tenant AND n.note_id = o.note_id
              WHERE o.tenant_id = p_tenant AND o.fact_id = f.fact_id AND n.deleted_at IS NULL
                AND n.note_id <> ALL (p_notes))
        ORDER BY f.fact_id);
END
$$;
