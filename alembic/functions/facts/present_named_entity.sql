-- Returns an entity as a writer sees it: a hidden one with its decoy id and the name and kind from the request.
-- Inlined into present_written_facts.
CREATE OR REPLACE FUNCTION present_named_entity(p_tenant text, p_entity uuid, p_ref int, p_entities json)
RETURNS TABLE (shown_id uuid, name text, kind text, norm text)
LANGUAGE sql STABLE
AS $$
    SELECT coalesce(e.decoy_id, e.entity_id), coalesce(n.canonical, e.canonical),
           CASE WHEN n.canonical IS NULL THEN e.kind ELSE n.kind END, coalesce(n.norm, e.canonical_norm::text)
    FROM graph_entities e
    LEFT JOIN json_to_recordset(p_entities) AS n(ref int, canonical text, kind text, norm text)
        ON e.suppression > 0 AND n.ref = p_ref
    WHERE e.tenant_id = p_tenant AND e.entity_id = p_entity OFFSET 0
$$;
