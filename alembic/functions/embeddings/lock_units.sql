-- Locks units against being hidden or erased until their vectors are stored; returns those locked, and those skipped
-- because another transaction is changing them. Part of store_vectors: never waits, so that no deadlock is possible.
CREATE OR REPLACE FUNCTION lock_units(
    p_tenant text, p_project text, p_main uuid, p_ids uuid[], OUT held uuid[], OUT skipped uuid[])
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
    held := ARRAY(
        SELECT c.card_id FROM memory_cards c
        WHERE c.tenant_id = p_tenant AND c.card_id = ANY (p_ids) AND c.project_id = p_project
        FOR SHARE SKIP LOCKED);
    held := held || ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_ids) AND f.project_id = p_project
        FOR SHARE SKIP LOCKED);
    held := held || ARRAY(
        SELECT n.note_id FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_ids) AND n.project_id = p_project
        FOR SHARE SKIP LOCKED);
    held := held || ARRAY(
        SELECT o.canonical_id FROM graph_objects o
        WHERE o.tenant_id = p_tenant AND o.branch_id = p_main AND o.canonical_id = ANY (p_ids)
        FOR SHARE SKIP LOCKED);
    skipped := ARRAY(
        SELECT x.id FROM (
            SELECT c.card_id AS id FROM memory_cards c WHERE c.tenant_id = p_tenant AND c.card_id = ANY (p_ids)
            UNION ALL
            SELECT f.fact_id FROM graph_facts f WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_ids)
            UNION ALL
            SELECT n.note_id FROM memory_notes n WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_ids)
            UNION ALL
            SELECT o.canonical_id FROM graph_objects o
            WHERE o.tenant_id = p_tenant AND o.branch_id = p_main AND o.canonical_id = ANY (p_ids)
        ) x WHERE x.id <> ALL (held));
END
$$;
