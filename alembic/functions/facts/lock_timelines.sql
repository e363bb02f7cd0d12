-- Locks what a write depends on, in this order: predicates (against a change of cardinality), subjects by id, objects
-- (against a merge). Runs with the settings and rights of write_facts.
CREATE OR REPLACE FUNCTION lock_timelines(
    p_tenant text, p_drafts fact_draft[], p_entities uuid[], p_predicates uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    PERFORM FROM (SELECT DISTINCT u.id FROM unnest(p_predicates) u(id) ORDER BY u.id) u
    CROSS JOIN LATERAL (
        SELECT FROM graph_predicates p WHERE p.tenant_id = p_tenant AND p.predicate_id = u.id FOR KEY SHARE) p;
    PERFORM FROM (SELECT DISTINCT p_entities[d.s] AS id FROM unnest(p_drafts) d ORDER BY id) u
    CROSS JOIN LATERAL (
        SELECT FROM graph_entities e WHERE e.tenant_id = p_tenant AND e.entity_id = u.id FOR NO KEY UPDATE) e;
    PERFORM FROM (SELECT DISTINCT p_entities[d.o] AS id FROM unnest(p_drafts) d WHERE d.o IS NOT NULL ORDER BY id) u
    CROSS JOIN LATERAL (
        SELECT FROM graph_entities e WHERE e.tenant_id = p_tenant AND e.entity_id = u.id FOR KEY SHARE) e;
END
$$;
