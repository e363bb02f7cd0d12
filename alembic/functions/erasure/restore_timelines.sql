-- Puts facts that become visible again in order with those written meanwhile, as if all had been written in the order
-- of their starts. Returns the facts of these timelines. Runs with the settings and rights of hide_or_restore_facts.
CREATE OR REPLACE FUNCTION restore_timelines(
    p_tenant text, p_project text, p_agent text, p_restored uuid[], p_now timestamptz)
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_facts uuid[];
BEGIN
    v_facts := ARRAY(
        SELECT DISTINCT x.fact_id FROM graph_facts f
        JOIN graph_facts x ON x.tenant_id = p_tenant AND x.project_id = p_project
            AND x.subject_entity_id = f.subject_entity_id AND x.predicate_id = f.predicate_id
            AND x.scope = f.scope AND x.owner_key = f.owner_key AND x.retracted_at IS NULL
            AND (x.suppression = 0 OR x.fact_id = ANY (p_restored))
        WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_restored));
    PERFORM merge_duplicates(p_tenant, p_project, p_agent, v_facts, NULL, NULL, p_now);
    PERFORM insert_mentions(
        p_tenant, p_project, array_agg(v.note_id), array_agg(x.entity_id),
        array_agg(f.source IS DISTINCT FROM 'pipeline'), array_agg(v.created_at))
    FROM graph_facts f
    JOIN graph_fact_evidence v ON v.tenant_id = p_tenant AND v.fact_id = f.fact_id
    JOIN memory_notes n ON n.tenant_id = p_tenant AND n.note_id = v.note_id
    CROSS JOIN LATERAL (VALUES (f.subject_entity_id), (f.object_entity_id)) x(entity_id)
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_restored);
    RETURN v_facts;
END
$$;
