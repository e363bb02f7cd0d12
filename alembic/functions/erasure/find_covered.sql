-- Returns the facts and notes that a tombstone on an entity in these scopes (NULL: all) covers: its facts, facts that
-- point to it or name it, notes that mention it or are evidence of its facts, and notes derived from those.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_covered(
    p_tenant text, p_project text, p_entity uuid, p_scopes text[], OUT facts uuid[], OUT notes uuid[])
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
BEGIN
    facts := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.subject_entity_id = p_entity
          AND (p_scopes IS NULL OR f.scope = ANY (p_scopes))
        UNION
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.object_entity_id = p_entity
          AND (p_scopes IS NULL OR f.scope = ANY (p_scopes))
        UNION
        SELECT f.fact_id FROM graph_fact_mentions m
        JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_id = m.fact_id
        WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity AND (p_scopes IS NULL OR f.scope = ANY (p_scopes)));
    notes := ARRAY(
        WITH RECURSIVE covered AS (
        SELECT n.note_id FROM note_entity_mentions m
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.note_id = m.note_id
        WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
        UNION
        SELECT n.note_id FROM graph_facts f
        JOIN graph_fact_evidence v ON v.tenant_id = p_tenant AND v.fact_id = f.fact_id
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.note_id = v.note_id
        WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (facts) AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
          AND (f.subject_entity_id = p_entity OR f.object_entity_id = p_entity)
        UNION
        SELECT n.note_id FROM covered d
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.derived_from = d.note_id
        WHERE p_scopes IS NULL OR n.scope = ANY (p_scopes)
        ) SELECT d.note_id FROM covered d);
END
$$;
